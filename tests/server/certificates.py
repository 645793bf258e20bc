"""TLS certificates for tests, signed by a certificate authority that is created for the tests."""

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Values of the arguments of x509.KeyUsage, in their order.
_USES = ("", "", "", "", "", "sign", "", "", "")


@dataclass(frozen=True)
class Identity:
    """A key and its certificate, in PEM."""

    key: bytes
    certificate: bytes


class Authority:
    """A certificate authority, which signs certificates for the loopback address."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's authority")])
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        signs = x509.KeyUsage(*(use == "sign" for use in _USES))
        signed = builder.add_extension(signs, critical=True).sign(self._key, hashes.SHA256())
        self.certificate = signed.public_bytes(serialization.Encoding.PEM)

    def identity(self) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        addresses = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = self._builder(name, key).add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), addresses]), critical=False
        )
        signed = builder.sign(self._key, hashes.SHA256())
        return Identity(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            signed.public_bytes(serialization.Encoding.PEM),
        )

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
