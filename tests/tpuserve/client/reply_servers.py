"""Servers over HTTP and gRPC in threads, which give the answers that a test has listed."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import grpc


@dataclass
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpServer(ThreadingHTTPServer):
    """Gives one answer after the other, and then repeats the last one."""

    daemon_threads = True

    def __init__(self, answers: Sequence[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.requests: list[tuple[str, bytes, Mapping[str, str]]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing where a client has closed its connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.requests.append((self.path, body, dict(self.headers)))
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def over_http(*answers: Answer) -> Iterator[HttpServer]:
    with HttpServer(answers) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class GrpcServer(grpc.GenericRpcHandler):
    """Answers each call with the next of its answers: bytes, or a status; the last one repeats."""

    def __init__(self, answers: Sequence[bytes | grpc.StatusCode]) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, bytes, Mapping[str, str]]] = []
        self.url = ""

    def service(self, details: Any) -> Any:
        def answer(request: bytes, context: Any) -> bytes:
            self.calls.append((details.method, request, dict(details.invocation_metadata)))
            result = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(result, grpc.StatusCode):
                context.abort(result, "the reason")
            assert isinstance(result, bytes)
            return result

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def over_grpc(*answers: bytes | grpc.StatusCode) -> Iterator[GrpcServer]:
    handler = GrpcServer(answers)
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[handler])
    handler.url = f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield handler
    finally:
        server.stop(None).wait()
