"""Pup's tokenizer: byte-level BPE whose merges never join letters with anything else.

A word then has the same tokens after a space, a quote or a slash, so it can be copied. llama.cpp
runs it with its `qwen2` pre-tokenizer. `python -m training.tokenizer` trains it from the dialogues.
"""

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.dialogues import dialogue

HERE = Path(__file__).parent
PATH = HERE / "tokenizer.json"
SIZE = 1536
FIRST_SEED = 900_000_000
DIALOGUES = 12_000
END = "<|im_end|>"
PAD = "<|endoftext|>"
CONTROL = (PAD, "<|im_start|>", END)
SPECIAL = (*CONTROL, "<tool_call>", "</tool_call>", "<think>", "</think>")
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _texts() -> Iterator[str]:
    for seed in range(FIRST_SEED, FIRST_SEED + DIALOGUES):
        yield "".join(text for text, _ in dialogue(seed, lambda t: len(t) // 3, 500).pieces())


def train(path: Path = PATH, dialogues: Iterator[str] | None = None) -> Tokenizer:
    """Learns the merges and writes the tokenizer to `path`."""
    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(QWEN2), "isolated")
    letters = pre_tokenizers.Split(Regex(r"\p{L}+|[^\p{L}]+"), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, letters, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(dialogues or _texts(), trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, to_bytes])
    tokenizer.save(str(path), pretty=False)
    return tokenizer


def load() -> Tokenizer:
    """The trained tokenizer."""
    return Tokenizer.from_file(str(PATH))


if __name__ == "__main__":
    print("vocabulary", train().get_vocab_size())
