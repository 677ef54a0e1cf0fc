"""Text that clients keep for the server and send back: signed with the server's own key."""

import base64
import binascii
import hmac
import secrets
from functools import cached_property
from pathlib import Path

from shepherd.config.files import exclusive, read_text, write_private
from shepherd.errors import ConfigError

KEY_BYTES = 32
_DIGEST = "sha256"
_SIGNATURE_BYTES = 32
_MAX_KEY_FILE = 1024


class SealError(ValueError):
    """The text was not signed by this server, or was changed."""


class SealKeyError(ConfigError):
    """The file of the key can't be used; the message names it."""


class Seal:
    """Signs texts with the key in the file at `path`, which is made at the first use.

    None keeps a random key in memory. `purpose` separates signatures: one for reasoning is not
    valid for anything else. Every method raises SealKeyError when the file can't be used.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def sign(self, purpose: str, text: str) -> str:
        """The signature of a text, in base64 for URLs."""
        return _encode(self._digest(purpose, text))

    def verify(self, purpose: str, text: str, signature: str) -> bool:
        """Whether `sign` has made the signature for this text."""
        try:
            return hmac.compare_digest(self._digest(purpose, text), _decode(signature))
        except SealError:
            return False

    def wrap(self, purpose: str, text: str) -> str:
        """The text and its signature as one word; anyone can read the text in it."""
        return _encode(self._digest(purpose, text) + _bytes(text))

    def unwrap(self, purpose: str, word: str) -> str:
        """The text in a word of `wrap`; raises SealError."""
        data = _decode(word)  # the signature, then the text
        signature, content = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
        text = content.decode("utf-8", "replace")
        if not hmac.compare_digest(self._digest(purpose, text), signature):
            raise SealError("the signature is not valid")
        return text

    def _digest(self, purpose: str, text: str) -> bytes:
        """The signature of a text; no purpose contains the zero byte that ends it."""
        return hmac.digest(self._key, f"{purpose}\0".encode() + _bytes(text), _DIGEST)

    @cached_property
    def _key(self) -> bytes:
        """The key of this server, the same for all servers that share the file."""
        if self._path is None:
            return secrets.token_bytes(KEY_BYTES)
        try:
            with exclusive(self._path):
                return _stored_key(self._path)
        except OSError as error:
            raise SealKeyError(f"{self._path}: can't be used: {error}") from error


def _stored_key(path: Path) -> bytes:
    """The key in the file, which is made if there is none."""
    try:
        key = bytes.fromhex(read_text(path, _MAX_KEY_FILE).strip())
    except FileNotFoundError:
        key = secrets.token_bytes(KEY_BYTES)
        write_private(path, f"{key.hex()}\n")
    except ValueError as error:
        raise SealKeyError(f"{path}: is damaged; delete it, and a new key is made") from error
    if len(key) != KEY_BYTES:
        raise SealKeyError(f"{path}: is damaged; delete it, and a new key is made")
    return key


def _bytes(text: str) -> bytes:
    """A text as UTF-8; half of a surrogate pair, which has none, becomes a question mark."""
    return text.encode("utf-8", "replace")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii")


def _decode(word: str) -> bytes:
    """The bytes of `_encode`; raises SealError."""
    try:
        return base64.b64decode(word.encode("ascii"), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise SealError("it is not base64") from error
