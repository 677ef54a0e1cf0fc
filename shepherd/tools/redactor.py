"""Replaces secrets in a stream of bytes, also those that arrive in parts."""

from collections.abc import Mapping


class Redactor:
    """Replaces each secret by its name; a possible beginning of one waits for its rest."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        ordered = sorted(secrets.items(), key=lambda item: -len(item[0]))
        self._names = {s.encode(): f"[{name}]".encode() for s, name in ordered if s}
        self._longest = max(map(len, self._names), default=0)
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes that are complete so far."""
        if not self._names:
            return data
        text = self._rest + data
        for secret, name in self._names.items():
            text = text.replace(secret, name)
        held = self._held(text)
        self._rest = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> bytes:
        """The bytes that waited."""
        rest, self._rest = self._rest, b""
        return rest

    def _held(self, text: bytes) -> int:
        """The length of the longest end of `text` with which a secret begins."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            end = text[-length:]
            if any(secret.startswith(end) for secret in self._names):
                return length
        return 0
