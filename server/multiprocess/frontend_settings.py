"""Computes the settings of the frontend processes, which share the limits of the server."""

import math
from dataclasses import replace

from server.config.settings import Settings
from server.process import memory_limit


def frontend_settings(settings: Settings) -> list[Settings]:
    """Return the settings of each frontend process of a server.

    The processes share the limit on the number of all requests in flight and the limit on their
    memory: each process gets an equal part. The limits on threads and on the requests of one client
    apply to each process. Only the first process listens on the UNIX socket, because a UNIX socket
    cannot be shared.
    """
    count = settings.frontend_processes
    if not settings.port and not settings.rest_api_port:
        count = 1
    share = replace(
        settings,
        frontend_processes=0,
        # Set enable_batching, although a frontend process runs no batches. The flag also lets a
        # request wait for the engine process without occupying a thread of the frontend process.
        enable_batching=True,
        max_requests_in_flight=math.ceil(settings.max_requests_in_flight / count),
        max_request_memory_bytes=math.ceil(
            (settings.max_request_memory_bytes or memory_limit.usable_memory_bytes() // 2) / count
        ),
        grpc_channel_arguments=(("grpc.so_reuseport", 1), *settings.grpc_channel_arguments),
    )
    return [share, *[replace(share, grpc_socket_path="")] * (count - 1)]
