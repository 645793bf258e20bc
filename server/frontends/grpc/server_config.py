"""Where a gRPC server listens, and as whom."""

from collections.abc import Iterable

import grpc

from server.config.tls import TlsConfig

_OPTIONS: dict[str, int | str] = {
    # TensorFlow Serving's limits: what a message can hold at all.
    "grpc.max_receive_message_length": 2**31 - 1,
    "grpc.max_send_message_length": 2**31 - 1,
    # With it, two servers on one port would share the clients between them, unnoticed.
    "grpc.so_reuseport": 0,
    # A client that is gone without a word is found out, and its requests are given up.
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 20_000,
    # A connection that never becomes one.
    "grpc.server_handshake_timeout_ms": 20_000,
}


def options(
    max_request_bytes: int | None = None, arguments: Iterable[tuple[str, int | str]] = ()
) -> list[tuple[str, int | str]]:
    """The channel arguments of a server.

    Args:
      max_request_bytes: None for what a message can hold at all.
      arguments: of the user's choice; they have the last word.
    """
    chosen = dict(_OPTIONS)
    if max_request_bytes is not None:
        chosen["grpc.max_receive_message_length"] = min(max_request_bytes, 2**31 - 1)
    chosen.update(arguments)
    return list(chosen.items())


def credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    """How a server with a certificate meets its clients."""
    return grpc.ssl_server_credentials(
        [(tls.server_key, tls.server_cert)],
        root_certificates=tls.custom_ca or None,
        require_client_auth=tls.client_verify,
    )


def listen(server: grpc.Server, addresses: Iterable[str], tls: TlsConfig | None) -> None:
    """Has a server listen at each address.

    Raises:
      RuntimeError: one of them is taken, or cannot be listened on.
    """
    for address in addresses:
        if tls is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, credentials(tls))
