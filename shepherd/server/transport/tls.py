"""The server's certificate: checked before the start, replaced while the server runs."""

import os
import ssl
import stat
from pathlib import Path

from msgspec import Struct

from shepherd.errors import ConfigError

_MAX_PASSWORD_BYTES = 1024


class TlsFiles(Struct, frozen=True):
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
        self.context = _checked_context(files)

    def replace(self, files: TlsFiles) -> None:
        """Use other files, or new contents, for new connections; raises ConfigError.

        After an error the earlier certificate stays.
        """
        _checked_context(files)
        _load(self.context, files)  # a context that is in use takes another certificate


def _checked_context(files: TlsFiles) -> ssl.SSLContext:
    """A context with the certificate, which was used for a handshake in memory."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)  # the side of a server
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not _read(files.certificate, "certificate"):
        raise ConfigError(f"The TLS certificate {files.certificate} is empty.")
    for path, name in ((files.key_file, "key"), (files.password, "password file")):
        if path is None:
            continue
        _read(path, name)
        # the bits for users who are neither the owner nor in the group of the file
        if path.stat().st_mode & stat.S_IRWXO:
            raise ConfigError(f"The TLS {name} {path} is open to all users; run: chmod o= {path}")
    _load(context, files)
    _check_handshake(context, files.certificate)
    return context


def _read(path: Path, name: str) -> bytes:
    """The beginning of a file; raises ConfigError for anything but a file that can be read.

    `name` is what the file is, for the error.
    """
    try:
        # a pipe without a writer would block here for good
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"The TLS {name} {path} is not a file.")
            return file.read(_MAX_PASSWORD_BYTES)
    except OSError as error:
        problem = error.strerror or error
        raise ConfigError(f"The TLS {name} {path} can't be read: {problem}.") from error


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Load certificate and key into a context; raises ConfigError."""
    password_uses = 0

    def password() -> bytes:
        """The password of an encrypted key; OpenSSL would ask for it at the terminal."""
        nonlocal password_uses
        password_uses += 1
        if files.password is None:  # loading then fails, and the error tells what to set
            return b""
        return _read(files.password, "password file").rstrip(b"\r\n")

    try:  # first alone: the error of both files does not say which of them is bad
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(files.certificate)
    except (ssl.SSLError, OSError) as error:
        message = f"The TLS certificate {files.certificate} is not a valid PEM file."
        raise ConfigError(message) from error
    try:
        context.load_cert_chain(files.certificate, files.key, password)
    except (ssl.SSLError, ValueError) as error:  # ValueError: a password that is too long
        raise ConfigError(_key_problem(error, files, encrypted=password_uses > 0)) from error


def _key_problem(error: ssl.SSLError | ValueError, files: TlsFiles, *, encrypted: bool) -> str:
    """What is wrong with a key whose certificate is valid; OpenSSL's reasons are names in capitals.

    `encrypted` says that the password was asked for.
    """
    reason = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    if "MISMATCH" in reason:
        return f"The TLS key {files.key_file} does not belong to the certificate."
    if encrypted and files.password is None:
        return f"The TLS key {files.key_file} is encrypted; set server.tls_password_file."
    if encrypted:
        return f"The password in {files.password} is not that of the TLS key {files.key_file}."
    if "TOO_SMALL" in reason or "TOO_WEAK" in reason:
        return f"The TLS certificate {files.certificate} is too weak: {reason}."
    return f"The TLS key {files.key_file} is not a valid PEM file with a private key."


def _check_handshake(context: ssl.SSLContext, certificate: Path) -> None:
    """Raise ConfigError if no client would accept the certificate, as an expired one."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # this client trusts the certificate itself, whoever has issued it
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server),
        context.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        while waiting:  # each round takes the handshake one step on, or fails
            waiting = [side for side in waiting if not _has_shaken_hands(side)]
    except ssl.SSLError as error:
        is_refused = isinstance(error, ssl.SSLCertVerificationError)
        reason = error.verify_message if is_refused else error
        raise ConfigError(f"The TLS certificate {certificate} is not usable: {reason}.") from error


def _has_shaken_hands(side: ssl.SSLObject) -> bool:
    """Let one side read and answer; False if it waits for the other side."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
