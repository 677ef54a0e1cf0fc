"""The server's certificate: checked before the start, replaced while the server runs."""

import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import ConfigError

_MAX_PASSWORD_BYTES = 1024
_STEPS = 10
"""A handshake in memory needs fewer rounds."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a certificate; without `key`, it is in the file of the certificate.

    `password` is a file with the password of the key, None for a key without one.
    """

    certificate: Path
    key: Path | None = None
    password: Path | None = None

    @property
    def key_file(self) -> Path:
        """The file that has the key."""
        return self.key or self.certificate


class ServerTls:
    """The TLS context of a server; raises ConfigError for files that can't be used."""

    def __init__(self, files: TlsFiles) -> None:
        self.context = _context(files)

    def replace(self, files: TlsFiles) -> None:
        """Use other files, or new contents, for new connections; raises ConfigError.

        After an error the earlier certificate stays.
        """
        self.context = _context(files)


def _context(files: TlsFiles) -> ssl.SSLContext:
    """A context with the certificate, which was used for a handshake in memory."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _check_files(files)
    _load(context, files)
    _check_handshake(context, files.certificate)
    return context


def _check_files(files: TlsFiles) -> None:
    if not _read(files.certificate, "certificate"):
        raise ConfigError(f"The TLS certificate {files.certificate} is empty.")
    _check_secret(files.key_file, "key")
    if files.password is not None:
        _check_secret(files.password, "password file")


def _check_secret(path: Path, name: str) -> None:
    """Raise ConfigError if the file can't be read, or if every user can read it."""
    _read(path, name)
    if path.stat().st_mode & stat.S_IRWXO:
        raise ConfigError(f"The TLS {name} {path} is open to all users; run: chmod o= {path}")


def _read(path: Path, name: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe does not block
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"The TLS {name} {path} is not a file.")
            return file.read(_MAX_PASSWORD_BYTES)
    except OSError as error:
        problem = error.strerror or error
        raise ConfigError(f"The TLS {name} {path} can't be read: {problem}.") from error


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    _check_pem(files.certificate)
    uses = 0

    def password() -> bytes:
        nonlocal uses
        uses += 1
        return _password(files)

    try:
        context.load_cert_chain(files.certificate, files.key, password)
    except ssl.SSLError as error:
        raise ConfigError(_problem(error, files, encrypted=uses > 0)) from error
    except ValueError as error:  # a password that is too long
        raise ConfigError(_wrong_password(files)) from error


def _check_pem(certificate: Path) -> None:
    """Raise ConfigError for a file without a certificate, before the key can be the reason."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"The TLS certificate {certificate} is not a valid PEM file.") from error


def _password(files: TlsFiles) -> bytes:
    """The password of an encrypted key; OpenSSL would ask for it at the terminal."""
    if files.password is None:
        return b""
    return _read(files.password, "password file").rstrip(b"\r\n")


def _wrong_password(files: TlsFiles) -> str:
    return f"The password in {files.password} is not that of the TLS key {files.key_file}."


def _problem(error: ssl.SSLError, files: TlsFiles, *, encrypted: bool) -> str:
    reason = error.reason or ""
    if "MISMATCH" in reason:
        return f"The TLS key {files.key_file} does not belong to the certificate."
    if encrypted and files.password is None:
        return f"The TLS key {files.key_file} is encrypted; set server.tls_password_file."
    if encrypted:
        return _wrong_password(files)
    if "TOO_SMALL" in reason or "TOO_WEAK" in reason:
        return f"The TLS certificate {files.certificate} is too weak: {reason}."
    return f"The TLS key {files.key_file} is not a valid PEM file with a private key."


def _check_handshake(context: ssl.SSLContext, certificate: Path) -> None:
    """Raise ConfigError if no client would accept the certificate, as an expired one."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server),
        context.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(_STEPS):
            done = [_is_done(side) for side in sides]
            if all(done):
                return
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"The TLS certificate {certificate} is not usable: {error.verify_message}."
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(f"The TLS certificate {certificate} is not usable: {error}.") from error
    raise ConfigError(f"The TLS certificate {certificate} is not usable.")


def _is_done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
