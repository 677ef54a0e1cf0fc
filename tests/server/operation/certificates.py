"""Certificates that tests make."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from shepherd.server.transport.tls import TlsFiles


@dataclass(frozen=True)
class Authority:
    """Certifies servers; `file` is the certificate that clients trust."""

    file: Path
    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    @classmethod
    def create(cls, directory: Path, name: str = "a test's authority") -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        own = _name(name)
        builder = _builder(own, own, key, timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        usage = x509.KeyUsage(
            *[False] * 5,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = builder.add_extension(usage, True).sign(key, SHA256())
        file = directory / "authority.pem"
        file.write_bytes(certificate.public_bytes(Encoding.PEM))
        return cls(file, key, own)

    def certify(
        self,
        directory: Path,
        name: str = "server",
        lifetime: timedelta = timedelta(days=1),
        password: bytes = b"",
    ) -> TlsFiles:
        """A certificate for 127.0.0.1 and localhost; an expired one for a negative lifetime."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self.name, key, lifetime)
        names = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        certificate = builder.sign(self.key, SHA256())
        encryption = BestAvailableEncryption(password) if password else NoEncryption()
        files = TlsFiles(directory / f"{name}.pem", directory / f"{name}.key")
        files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        assert files.key is not None
        files.key.touch(0o600)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + lifetime)
    )
