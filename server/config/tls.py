"""The keys of a server, from --ssl_config_file."""

from dataclasses import dataclass
from pathlib import Path

from server.config import messages, textproto
from tpuserve.errors import InvalidConfig


@dataclass(frozen=True)
class Tls:
    """What a server shows and asks of its clients; all in PEM.

    Attributes:
      custom_ca: the authorities that clients' certificates are checked by; empty for the usual.
      client_verify: whether a client must show a certificate.
    """

    server_key: bytes
    server_cert: bytes
    custom_ca: bytes = b""
    client_verify: bool = False


def read(path: Path) -> Tls:
    """What a file of the text form of SSLConfig holds: the PEM text itself, no file names.

    Raises:
      InvalidConfig: it cannot be read or parsed, or has no key or certificate.
    """
    proto = textproto.parse(textproto.read(path), messages.new("SSLConfig"), path)
    for name in ("server_key", "server_cert"):
        if "-----BEGIN" not in getattr(proto, name):
            raise InvalidConfig(
                f"{path} has no PEM text in {name}. Put the text itself there, with \\n for line "
                f"ends, and not the name of a file."
            )
    return Tls(
        server_key=proto.server_key.encode(),
        server_cert=proto.server_cert.encode(),
        custom_ca=proto.custom_ca.encode(),
        client_verify=proto.client_verify,
    )
