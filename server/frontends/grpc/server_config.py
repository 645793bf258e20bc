"""Channel arguments, credentials and listening addresses of a gRPC server."""

from collections.abc import Iterable

import grpc

from server.config.tls import TlsConfig

_MAX_MESSAGE_BYTES = 2**31 - 1
# A connection can have this number of HTTP/2 streams beyond the largest number of requests in
# flight from one client.
_EXTRA_STREAMS = 100

_CHANNEL_ARGUMENTS: dict[str, int | str] = {
    # Allow messages up to the largest size that protobuf allows, as TensorFlow Serving does.
    "grpc.max_receive_message_length": _MAX_MESSAGE_BYTES,
    "grpc.max_send_message_length": _MAX_MESSAGE_BYTES,
    # Turn gRPC's decompression off. The server decompresses messages itself, and bounds the
    # decompressed bytes of all calls together.
    "grpc.per_message_decompression": 0,
    # Disable SO_REUSEPORT. Otherwise a second server on the same port would start without an error,
    # and take a share of the clients.
    "grpc.so_reuseport": 0,
    # Send keepalive pings, which detect clients that have disappeared, so that gRPC cancels their
    # calls.
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 20_000,
    # Close a TCP connection if its handshake, for example of TLS, takes longer than 20 seconds.
    "grpc.server_handshake_timeout_ms": 20_000,
}


def channel_arguments(
    max_request_bytes: int | None = None,
    max_requests_per_peer: int = 0,
    user_arguments: Iterable[tuple[str, int | str]] = (),
    max_connections: int = 0,
) -> list[tuple[str, int | str]]:
    """Return the channel arguments of a server.

    Args:
      max_request_bytes: the largest size of a request message in bytes; None for the largest size
        that protobuf allows.
      max_requests_per_peer: the largest number of requests in flight from one client address; 0 for
        no limit.
      max_connections: the largest number of connections to an address; 0 for no limit.
    """
    arguments = dict(_CHANNEL_ARGUMENTS)
    if max_request_bytes is not None:
        arguments["grpc.max_receive_message_length"] = min(max_request_bytes, _MAX_MESSAGE_BYTES)
    if max_requests_per_peer:
        arguments["grpc.max_concurrent_streams"] = max_requests_per_peer + _EXTRA_STREAMS
    if max_connections:
        arguments["grpc.max_allowed_incoming_connections"] = max_connections
    arguments.update(user_arguments)
    return list(arguments.items())


def server_credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    """Create the credentials of a server that uses TLS."""
    return grpc.ssl_server_credentials(
        [(tls.server_key, tls.server_cert)],
        root_certificates=tls.custom_ca or None,
        require_client_auth=tls.client_verify,
    )


def add_listening_addresses(
    server: grpc.Server, addresses: Iterable[str], tls: TlsConfig | None
) -> None:
    """Bind a server to addresses.

    Args:
      addresses: the addresses to listen on, such as "127.0.0.1:8500" or "unix:/tmp/socket".
      tls: the certificate of the server; None for plain connections.
    """
    for address in addresses:
        if tls is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, server_credentials(tls))
