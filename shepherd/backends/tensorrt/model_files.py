"""What Shepherd needs of a model: the facts in its files, and its vocabulary."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from msgspec import Struct

from shepherd import errors, messages
from shepherd.backends.inprocess import special
from shepherd.json_text import as_count, as_object

CONFIG = "config.json"
GENERATION = "generation_config.json"
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")

Fetch = Callable[[str, str], Path | None]
"""Maps repository and file name to the file's path; None if the repository lacks the file."""


class ModelFacts(Struct, frozen=True):
    """Tokens of context (0 if unknown), tokens that end an answer, and whether it is an engine.

    An engine was built by `trtllm-build` for one kind of GPU; others are Hugging Face checkpoints.
    """

    context_size: int = 0
    ends: tuple[int, ...] = ()
    is_engine: bool = False


def read_facts(model: str, fetch: Fetch | None = None) -> ModelFacts:
    """The facts of a directory, or of a name on the hub; raises ModelLoadError.

    `fetch` downloads a file of the hub; the default is the real download.
    """
    fetch = fetch or fetch_from_hub
    config = _read(model, CONFIG, fetch)
    if config is None:
        raise errors.ModelLoadError(
            f"{model} is not a model for TensorRT-LLM: it has no {CONFIG}. Give a directory with a "
            "Hugging Face checkpoint or an engine, or a name on the hub (OWNER/NAME)."
        )
    build = as_object(config.get("build_config"))
    if build:
        return ModelFacts(as_count(build.get("max_seq_len")) or 0, is_engine=True)
    generation = _read(model, GENERATION, fetch) or {}
    text = as_object(config.get("text_config"))  # of a model that also sees
    ends = (_end_tokens(part) for part in (generation, config, text))
    sizes = (as_count(part.get(key)) for part in (config, text) for key in _CONTEXT_KEYS)
    return ModelFacts(next(filter(None, sizes), 0), next(filter(None, ends), ()))


def fetch_from_hub(repo: str, name: str) -> Path | None:
    """A file of a repository, from the hub or its cache; raises ModelLoadError."""
    import huggingface_hub
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
    )

    try:
        hub = cast(Any, huggingface_hub)  # its signature has unknown types
        return Path(str(hub.hf_hub_download(repo, name)))
    except HFValidationError as error:
        raise errors.ModelLoadError(
            f"There is no directory {repo}, and it is not a name on the hub (OWNER/NAME) either."
        ) from error
    except LocalEntryNotFoundError as error:
        raise errors.ModelLoadError(
            f"{repo} is not in the hub's cache, and the hub does not answer."
        ) from error
    except EntryNotFoundError:  # the repository lacks this file
        return None
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise errors.ModelLoadError(f"{repo} can't be had from the hub: {reason}") from error


def _read(model: str, name: str, fetch: Fetch) -> messages.JsonObject | None:
    """A file of a directory or of a repository; None if there is none."""
    folder = Path(model).expanduser()
    path = folder / name if folder.is_dir() else fetch(model, name)
    if path is None or not path.is_file():
        return None
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.ModelLoadError(f"{path} can't be read: {error}") from error
    return as_object(data)


def _end_tokens(part: messages.JsonObject) -> tuple[int, ...]:
    """The tokens that end an answer, by a file that names one or several."""
    value: object = part.get("eos_token_id")
    values = cast(list[object], value) if isinstance(value, list) else [value]
    return tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))


NO_TOKEN = -1
_BYTE = re.compile(r"<0x(?P<hex>[0-9A-Fa-f]{2})>")
_METASPACE = "\u2581"


class Encoder(Protocol):
    """The part of a tokenizer that turns text into tokens."""

    def encode(self, text: str, **options: Any) -> list[int]: ...


class HubVocabulary:
    """Made from `tokenizer.json`; `ends` are the tokens that end an answer.

    `bos` is the token that templates call `bos_token`.
    """

    def __init__(
        self, encoder: Encoder, serialized: str, ends: Sequence[int], bos: int | None = None
    ) -> None:
        """Raises ModelLoadError if `serialized` is not a tokenizer with a vocabulary."""
        data = cast(messages.JsonObject, json.loads(serialized))
        added = cast(list[messages.JsonObject], data.get("added_tokens") or [])
        self._encoder = encoder
        self._pieces = _pieces(data)
        self._pieces |= {int(token["id"]): str(token["content"]).encode() for token in added}
        self.size = max(self._pieces, default=-1) + 1
        self.specials: Mapping[int, int] = {int(t["id"]): _attributes(t) for t in added}
        self.ends: Sequence[int] = tuple(dict.fromkeys(ends))
        self.bos = NO_TOKEN if bos is None else bos
        self.eos = self.ends[0] if self.ends else NO_TOKEN
        self.adds_bos = False  # the templates of checkpoints write it
        self.is_sentencepiece = False

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The tokens of `text`; special ones in it are text unless `parse_special`."""
        return self._encoder.encode(
            text, add_special_tokens=False, split_special_tokens=not parse_special
        )

    def piece(self, token: int) -> bytes:
        """The token's bytes, b"" for a number that only pads the vocabulary."""
        return self._pieces.get(token, b"")

    def text(self, token: int) -> str:
        """The token as text, "" if there is no such token."""
        return self.piece(token).decode("utf-8", "replace")


def _attributes(token: messages.JsonObject) -> int:
    """llama.cpp's attributes of a token that was added to the vocabulary."""
    flags = special.ATTR_CONTROL if token.get("special") else special.ATTR_USER_DEFINED
    flags |= special.ATTR_LSTRIP if token.get("lstrip") else 0
    return flags | (special.ATTR_RSTRIP if token.get("rstrip") else 0)


def _pieces(data: messages.JsonObject) -> dict[int, bytes]:
    """Each token's bytes, in the tokenizer's own encoding."""
    tokens = _tokens(cast(messages.JsonObject, data.get("model") or {}))
    if "ByteLevel" in _decoder_types(data.get("decoder")):
        alphabet = byte_alphabet()
        return {number: _from_alphabet(text, alphabet) for text, number in tokens.items()}
    return {number: _from_metaspace(text) for text, number in tokens.items()}


def _tokens(model: messages.JsonObject) -> dict[str, int]:
    """The numbers of tokens by their text; raises ModelLoadError."""
    vocab: object = model.get("vocab")
    if isinstance(vocab, dict):
        return {str(t): int(n) for t, n in cast(dict[Any, Any], vocab).items()}
    if isinstance(vocab, list):  # of a unigram model: each token with its score
        rows = cast(list[list[Any]], vocab)
        return {str(row[0]): number for number, row in enumerate(rows)}
    raise errors.ModelLoadError("The model's tokenizer has no vocabulary that can be read.")


def _decoder_types(decoder: object) -> list[str]:
    """The types of a decoder and of those in it."""
    if not isinstance(decoder, dict):
        return []
    known = cast(messages.JsonObject, decoder)
    inner = cast(list[object], known.get("decoders") or [])
    return [str(known.get("type")), *(kind for part in inner for kind in _decoder_types(part))]


def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in byte-level tokenizers."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


def _from_alphabet(text: str, alphabet: Mapping[str, int]) -> bytes:
    """The bytes that the characters stand for; an added token is written as it is."""
    if all(character in alphabet for character in text):
        return bytes(alphabet[character] for character in text)
    return text.encode()


def _from_metaspace(text: str) -> bytes:
    """The bytes of `<0x0A>`, or of a text in which a block stands for a space."""
    byte = _BYTE.fullmatch(text)
    return bytes([int(byte["hex"], 16)]) if byte else text.replace(_METASPACE, " ").encode()
