"""Vocabularies of the kinds that llama.cpp knows, small ones."""

from collections.abc import Callable, Sequence

import gguf

from tests.backends.llamacpp.tiny import BYTE, CONTROL, CONTROLS, MARKERS, NORMAL, UNKNOWN
from tests.backends.llamacpp.tiny import USER_DEFINED as DEFINED

MERGES = ["h e", "l l", "he ll", "Ġ t", "Ġt he", "i n", "Ġ in", "Ċ Ċ", "Ġ Ġ", "e r", "Ã ©"]


def bpe(pre: str = "gpt-2", extra: Sequence[str] = ()) -> Callable[[gguf.GGUFWriter], int]:
    """Byte pairs, cut into words first as `pre` says; `extra` are more control tokens."""

    def add(writer: gguf.GGUFWriter) -> int:
        controls = ["<|endoftext|>", *CONTROLS, *extra]
        plain = [*_byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]
        tokens = [*controls, *MARKERS[:-1], *plain]
        types = [CONTROL] * len(controls) + [DEFINED] * (len(MARKERS) - 1) + [NORMAL] * len(plain)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges(MERGES)
        writer.add_eos_token_id(tokens.index("<|im_end|>"))
        writer.add_add_bos_token(False)
        return len(tokens)

    return add


def sentencepiece(
    *, blank: bool, bos: bool, extra: Sequence[str] = ()
) -> Callable[[gguf.GGUFWriter], int]:
    """SentencePiece, with or without a blank before each text and BOS."""

    def add(writer: gguf.GGUFWriter) -> int:
        heads = ["<unk>", "<s>", "</s>", *CONTROLS, *extra]
        words = ["▁", "he", "ll", "hell", "hello", "▁hello", "▁the", "in", "▁in", "▁▁", "é", "er"]
        letters = [chr(c) for c in range(ord("!"), ord("~") + 1)]
        plain = [*letters, *words]
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
        tokens = [*heads, *MARKERS, *bytes_, *plain]
        types = [UNKNOWN] + [CONTROL] * (len(heads) - 1) + [DEFINED] * len(MARKERS)
        types += [BYTE] * 256 + [NORMAL] * len(plain)
        scores = [0.0] * (len(tokens) - len(plain)) + [-float(rank) for rank in range(len(plain))]
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(tokens.index("<|im_end|>"))
        writer.add_unk_token_id(0)
        writer.add_add_bos_token(bos)
        writer.add_add_space_prefix(blank)
        return len(tokens)

    return add


def unigram(writer: gguf.GGUFWriter) -> int:
    """Unigrams, as T5 has them."""
    heads = ["<pad>", "</s>", "<unk>", *CONTROLS]
    words = ["▁", "he", "ll", "hell", "hello", "▁hello", "▁the", "in", "▁in", "é", "er"]
    plain = [*(chr(c) for c in range(ord("!"), ord("~") + 1)), *words]
    tokens = [*heads, *MARKERS[:-1], *plain]
    types = [CONTROL, CONTROL, UNKNOWN] + [CONTROL] * len(CONTROLS)
    types += [DEFINED] * (len(MARKERS) - 1) + [NORMAL] * len(plain)
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(len(tokens) - i) / 10 for i in range(len(tokens))])
    writer.add_token_types(types)
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_unk_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(True)
    return len(tokens)


def _byte_letters() -> list[str]:
    """The letters that stand for bytes in GPT-2's vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]
