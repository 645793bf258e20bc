"""Reads the server's TLS keys and certificates from the file of --ssl_config_file."""

from dataclasses import dataclass
from pathlib import Path

from server.config import messages, textproto
from tpuserve.errors import InvalidConfig


@dataclass(frozen=True)
class TlsConfig:
    """The server's private key and certificates, all in PEM.

    Attributes:
      custom_ca: the certificate authorities with which clients' certificates are verified; empty if
        they are not verified.
    """

    server_key: bytes
    server_cert: bytes
    custom_ca: bytes = b""
    client_verify: bool = False


def read_tls_config(path: Path) -> TlsConfig:
    """Read a file with an SSLConfig message in text form, whose fields hold PEM text.

    Raises:
      InvalidConfig: the file cannot be read or parsed, has no key or no certificate, or requires
        clients' certificates without a certificate authority.
    """
    config = textproto.read_message(path, messages.new_message("SSLConfig"))
    for name in ("server_key", "server_cert"):
        if "-----BEGIN" not in getattr(config, name):
            raise InvalidConfig(
                f"{path} has no PEM text in {name}. Put the PEM text itself there, with \\n for "
                f"line ends, and not the name of a file."
            )
    if config.client_verify and "-----BEGIN" not in config.custom_ca:
        raise InvalidConfig(
            f"{path} sets client_verify and has no PEM text in custom_ca, so that no client could "
            f"be verified. Put the authorities' certificates there, or remove client_verify."
        )
    return TlsConfig(
        server_key=config.server_key.encode(),
        server_cert=config.server_cert.encode(),
        custom_ca=config.custom_ca.encode(),
        client_verify=config.client_verify,
    )
