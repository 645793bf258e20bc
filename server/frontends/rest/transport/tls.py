"""TLS for REST, with the same key and certificates as for gRPC."""

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from server.config.tls import TlsConfig
from tpuserve.errors import InvalidConfig


def create_ssl_context(tls: TlsConfig) -> ssl.SSLContext:
    """Create the TLS context of a listening socket from the key and certificates.

    Raises:
      InvalidConfig: The key or a certificate cannot be parsed, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Write temporary files, because the ssl module loads a key and its certificate only from
        # files.
        with _write_file(tls.server_cert) as certificate, _write_file(tls.server_key) as key:
            context.load_cert_chain(certificate, key, password=_refuse_password)
        if tls.custom_ca:
            context.load_verify_locations(cadata=tls.custom_ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfig(
            f"--ssl_config_file: the key and certificates cannot be used: {error}. Give the PEM "
            f"text of a certificate and of the key that belongs to it."
        ) from error
    if tls.client_verify:
        context.verify_mode = ssl.CERT_REQUIRED
        if not tls.custom_ca:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _refuse_password() -> str:
    # Raise an error if the key is encrypted. Without this callback, OpenSSL would prompt for the
    # password on the terminal.
    raise ValueError("the key is encrypted")


@contextmanager
def _write_file(content: bytes) -> Iterator[str]:
    """Write a file that only the user of this process can read, and yield the path of the file."""
    if sys.platform.startswith("linux"):
        handle = os.memfd_create("tls")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{handle}"
        return
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)
