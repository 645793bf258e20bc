"""TLS for the REST face, from the same keys as for gRPC."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from server.config.tls import TlsConfig
from tpuserve.errors import InvalidConfig


def context(tls: TlsConfig) -> ssl.SSLContext:
    """The context that a listening socket is wrapped in.

    Raises:
      InvalidConfig: the key or a certificate is none, or they do not belong together.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Python reads these from files alone.
        with _file(tls.server_cert) as certificate, _file(tls.server_key) as key:
            made.load_cert_chain(certificate, key, password=_no_password)
        if tls.custom_ca:
            made.load_verify_locations(cadata=tls.custom_ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfig(
            f"--ssl_config_file: the key and certificates cannot be used: {error}. Give the PEM "
            f"text of a certificate and of the key that belongs to it."
        ) from error
    if tls.client_verify:
        made.verify_mode = ssl.CERT_REQUIRED
        if not tls.custom_ca:
            made.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return made


def _no_password() -> str:
    # Without it OpenSSL would ask whoever sits at the terminal.
    raise ValueError("the key is encrypted")


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    # Readable by nobody else, and gone as soon as it is read.
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)
