"""Certificates for receivers of the loopback, good and bad, made on the spot."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import warnings
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


@dataclass
class Authority:
    """A certificate authority that signs what a test asks for."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    folder: Path

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def server(
        self, *, host: str = "localhost", days: int = 1, signed: bool = True
    ) -> ssl.SSLContext:
        """A server context; negative days make it expired, unsigned self-signed."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(host)
        alternatives: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.certificate.subject if signed else name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - 10 * DAY)
            .not_valid_after(NOW + days * DAY)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self.key if signed else key, hashes.SHA256())
        )
        path = self.folder / f"{host}-{days}-{signed}.pem"
        path.write_bytes(
            made.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def old_server(self) -> ssl.SSLContext:
        """A server that speaks TLS 1.0 and nothing else."""
        context = self.server()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1
        return context


def authority(folder: Path) -> Authority:
    """Make a new authority that nobody trusts yet."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Test authority")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 20 * DAY)
        .not_valid_after(NOW + 20 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return Authority(key=key, certificate=certificate, folder=folder)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
