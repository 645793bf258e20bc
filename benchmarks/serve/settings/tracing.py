"""Compares the server with and without traces on a CNN for MNIST, over REST and gRPC.

    python -m benchmarks.serve.settings.tracing [--clients 8] [--rounds 5] [--seconds 4]

Each request has one image. Every request is traced: the server with traces exports a span for each
request and for each of its stages to a collector in this process, which discards them. The servers
take turns, so that other programs of the machine affect both equally. The benchmark prints the
figures of each round, and the median of their ratios, with traces to without.

Needs h2load (Debian: nghttp2-client).
"""

import argparse
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager

import grpc

from benchmarks.serve.settings.batching import add_arguments, compare_flag

# The goal: requests/s with traces divided by requests/s without.
TARGET = 0.95
_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


@contextmanager
def discarding_collector() -> Iterator[str]:
    """Receive spans and discard them; yield the address of the collector."""
    export = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {"Export": export}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def main() -> None:
    """Measure, and print the ratios of both servers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_arguments(parser, [8])
    arguments = parser.parse_args()
    with discarding_collector() as endpoint:
        targets = dict.fromkeys(arguments.clients, TARGET)
        compare_flag(f"--otlp_endpoint={endpoint}", arguments, targets)


if __name__ == "__main__":
    main()
