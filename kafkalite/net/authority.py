"""Creates a certificate authority and certificates, for tests and first steps. It needs the package `cryptography`.

Keys are EC keys (P-256) without a password; the key of an authority can sign certificates until it is deleted.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

PAST = timedelta(days=1)  # clocks of other machines may be behind


class Issued(NamedTuple):
    """A certificate and its private key as PEM texts."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Issued(...)"


class Authority:
    """Signs certificates.

    Arguments:
        name: of the authority, its common name.
        days: how long it is valid.

    Attributes:
        issued: its own certificate and key.

    Raises:
        ValueError: `cryptography` is not installed.
    """

    def __init__(self, name: str, days: int) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            raise ValueError("certificates need cryptography: pip install 'kafkalite[security]'") from None
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _signed(name, self._key, None, self._key, days, ())
        self.issued = _issued(self._certificate, self._key)

    def issue(self, name: str, hosts: Sequence[str], days: int) -> Issued:
        """Sign a certificate for servers and clients.

        Arguments:
            name: common name of the subject.
            hosts: host names and addresses of a server.
            days: how long it is valid.
        """
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        return _issued(_signed(name, key, self._certificate, self._key, days, hosts), key)


def _signed(
    name: str,
    key: "EllipticCurvePrivateKey",
    issuer: "x509.Certificate | None",
    issuer_key: "EllipticCurvePrivateKey",
    days: int,
    hosts: Sequence[str],
) -> "x509.Certificate":
    """Return a certificate; without an issuer that of an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    subject, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - PAST)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(_key_usage(signs=issuer is None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_host(each) for each in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _key_usage(*, signs: bool) -> "x509.KeyUsage":
    """Return what a key may be used for: to sign certificates, or in handshakes."""
    from cryptography.x509 import KeyUsage

    return KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _issued(certificate: "x509.Certificate", key: "EllipticCurvePrivateKey") -> Issued:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Issued(certificate.public_bytes(Encoding.PEM).decode(), private.decode())
