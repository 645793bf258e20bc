"""The time that a call has left is that of the client's deadline; None if it has set none."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager

import grpc
import pytest

from server.frontends.grpc import deadlines

METHOD = "/Test/RemainingSeconds"


class Handler(grpc.GenericRpcHandler):
    """Answers every call with the seconds that the call has left, as text."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(
            lambda message, context: str(deadlines.remaining_seconds(context)).encode()
        )


@contextmanager
def channel_to(handler: grpc.GenericRpcHandler) -> Iterator[grpc.Channel]:
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        server.stop(None).wait()


def test_the_time_left_is_that_of_the_deadline_and_none_without_one() -> None:
    with channel_to(Handler()) as channel:
        call = channel.unary_unary(METHOD)
        assert call(b"") == b"None"
        # gRPC rounds a long timeout up, to 3610 seconds here.
        assert float(call(b"", timeout=3600)) == pytest.approx(3600, abs=60)
