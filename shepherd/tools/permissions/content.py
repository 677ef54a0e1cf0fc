"""Recognises private keys by their content, not by the name of their file."""

import base64
import binascii
import re
import stat
from pathlib import Path

_HEAD_BYTES = 16_384
"""A key is at the beginning of its file; that of a service account in the first 2 KB."""

_KEY = re.compile(
    r"-----(?:BEGIN|END) (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"|---- (?:BEGIN|END) SSH2 (?:ENCRYPTED )?PRIVATE KEY ----"
    r"|PuTTY-User-Key-File-[0-9]"
    r"|AGE-SECRET-KEY-1[A-Z0-9]|AGE-PLUGIN-[A-Z0-9-]+-1[A-Z0-9]{10}"
    r"|b3BlbnNzaC1rZXktdjE"  # openssh-key-v1
    r"|MII[A-Za-z0-9+/]{3}IBAAKC|MII[A-Za-z0-9+/]{3}IBADANBgkqhkiG9w"  # RSA, bare and in PKCS #8
    r"|MHcCAQEE|MIGHAgEAMBMGByqGSM49|MC4CAQAwBQYDK2Vw"  # curves, bare and in PKCS #8
)
_BEGINNING = re.compile(
    r"[{\[]|----|PuTTY|Bag Attributes|# created:|AGE-|LS0t|b3Bl|MII|apiVersion:"
)
_WRAPPED = re.compile(r"LS0t[A-Za-z0-9+/]{40,}")
"""Base64 of `---`, as in the secrets of Kubernetes."""


def holds_private_key(text: str) -> bool:
    """Whether the text has the header, the footer or the first bytes of a private key."""
    return bool(private_key_sign(text))


def private_key_sign(text: str) -> str:
    """The header, the footer or the first bytes of a private key in the text; "" if none."""
    texts = [text, *(_decoded(match[0]) for match in _WRAPPED.finditer(text))]
    matches = map(_KEY.search, texts)
    return next((match[0] for match in matches if match is not None), "")


def is_key_file(path: Path) -> bool:
    """Whether a file is a private key or a JSON object with one, not source code that quotes one.

    False if it is not a regular file or can't be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False  # the tool will fail, too
    return is_key(head)


def is_key(data: bytes) -> bool:
    """The same for the content of a file."""
    # without what UTF-16 and byte order marks add to the text of a key
    text = (
        data[:_HEAD_BYTES]
        .replace(b"\0", b"")
        .decode("latin-1")
        .removeprefix("\xef\xbb\xbf")
        .lstrip("\xff\xfe \t\r\n")
    )
    # source code that quotes a key begins with something else
    return bool(_BEGINNING.match(text)) and holds_private_key(text)


def _decoded(text: str) -> str:
    """The text behind base64, whose last group of four may be cut off."""
    try:
        return base64.b64decode(text[: len(text) // 4 * 4]).decode("latin-1")
    except binascii.Error:
        return ""
