"""Sends requests from many clients of one model, and prints their latencies.

    python -m benchmarks.serve.attacks.neighbours_client rest|grpc PORT MODEL CLIENTS SECONDS

Each client sends its next request when the previous one is answered. A client whose request is
refused waits for a second, as Retry-After tells. With 0 seconds the clients send until standard
input ends. The output is one line of JSON: the latencies of answers in milliseconds, and the number
of refusals.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

_CLIENTS_PER_CHANNEL = 50
_REFUSED_SECONDS = 1.0

Send: TypeAlias = Callable[[], Awaitable[bool]]
"""Sends a request and waits for the response; returns whether the model answered."""


async def run_clients(sends: list[Send], seconds: float) -> tuple[list[float], int]:
    """Run all clients at the same time, and return the latencies and the number of refusals."""
    latencies: list[float] = []
    refused = 0
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    if seconds:
        loop.call_later(seconds, stop.set)
    else:
        loop.run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: stop.set())

    async def run_client(send: Send) -> None:
        nonlocal refused
        while not stop.is_set():
            start = time.perf_counter()
            if await send():
                latencies.append((time.perf_counter() - start) * 1000)
            else:
                refused += 1
                await asyncio.sleep(_REFUSED_SECONDS)

    clients = [asyncio.ensure_future(run_client(send)) for send in sends]
    await stop.wait()
    if not seconds:
        for client in clients:
            client.cancel()
    await asyncio.gather(*clients, return_exceptions=not seconds)
    return latencies, refused


async def rest_senders(port: str, model: str, count: int) -> list[Send]:
    """Open a connection for each client over REST."""
    body = b'{"instances": [1.0]}'
    head = f"POST /v1/models/{model}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
    request = head.encode() + b"%d\r\n\r\n" % len(body) + body

    async def connect() -> Send:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))

        async def send() -> bool:
            writer.write(request)
            response = await reader.readuntil(b"\r\n\r\n")
            fields = response.lower().partition(b"content-length:")[2]
            await reader.readexactly(int(fields.partition(b"\r\n")[0]))
            return response.startswith(b"HTTP/1.1 200")

        return send

    return [await connect() for _ in range(count)]


async def grpc_senders(port: str, model: str, count: int) -> list[Send]:
    """Open a channel for each 50 clients over gRPC."""
    import grpc

    # Serialise by hand, because the generated messages import TensorFlow. This is a PredictRequest
    # for the model with the input x = [1.0].
    name = model.encode()
    spec = b"\x0a" + bytes([len(name)]) + name
    tensor = b"\x08\x01\x12\x04\x12\x02\x08\x01\x2a\x04\x00\x00\x80\x3f"
    entry = b"\x0a\x01x\x12" + bytes([len(tensor)]) + tensor
    request = b"\x0a" + bytes([len(spec)]) + spec + b"\x12" + bytes([len(entry)]) + entry

    def connect() -> Any:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options)
        return channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

    calls = [connect() for _ in range(-(-count // _CLIENTS_PER_CHANNEL))]

    def sender(call: Any) -> Send:
        async def send() -> bool:
            try:
                await call(request)
            except grpc.aio.AioRpcError as error:
                if error.code() not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                ):
                    raise
                return False
            return True

        return send

    return [sender(calls[number // _CLIENTS_PER_CHANNEL]) for number in range(count)]


async def main() -> None:
    """Run the clients that the arguments describe."""
    face, port, model, count, seconds = sys.argv[1:]
    connect = rest_senders if face == "rest" else grpc_senders
    sends = await connect(port, model, int(count))
    print("connected", flush=True)
    latencies, refused = await run_clients(sends, float(seconds))
    print(json.dumps({"latencies_ms": latencies, "refused": refused}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
