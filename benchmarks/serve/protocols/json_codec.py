"""Compares the server's JSON codec with json.loads, np.array and json.dumps on images.

    python -m benchmarks.serve.protocols.json_codec [--rounds 7]

Each image has 150,528 numbers. The benchmark measures first the codecs alone, and then whole
requests over a socket to the same ASGI server with either codec. The codecs take turns, and the
benchmark compares processor time, because wall time depends on the other programs of the machine.
"""

import argparse
import contextlib
import http.client
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.serve.protocols.rest import Side, serving
from server.codec import json_parser, requests, responses
from server.codec.array_to_json import JsonText
from server.process import malloc
from server.servables.servable import Array
from tpuserve.saved_model.signature import Signature, TensorSpec

SHAPE = (1, 224, 224, 3)
TARGET = 5.0
# The number of requests of one turn over a socket. It is large, because the processor time of a
# process has a resolution of 10 ms.
REQUESTS = 20
_SIGNATURE = Signature({"x": TensorSpec("x:0", "float32", (None, 224, 224, 3))}, {})

ModelFunction = Callable[[Array], Array]


def predict_with_json_module(body: bytes, model: ModelFunction) -> bytes:
    """Decode a request, run the model and encode the response with the json module and numpy."""
    array = np.array(json.loads(body)["instances"], np.float32)
    return json.dumps({"predictions": model(array).tolist()}).encode()


def predict_with_server_codec(body: bytes, model: ModelFunction) -> JsonText:
    """Decode a request, run the model and encode the response with the server's codec."""
    arrays = requests.decode_inputs(json_parser.parse_json(body), _SIGNATURE)
    return responses.encode_row_format({"y": model(arrays["x"])})


def make_request_bodies() -> Mapping[str, bytes]:
    """Return request bodies of one image, by the kind of their numbers."""
    generator = np.random.default_rng(7)
    floats = generator.random(SHAPE, np.float32)
    pixels = (floats * 256).astype(int)
    return {
        "three digits": _encode_body(np.round(floats.astype(float), 3).tolist()),
        "as float32": _encode_body(
            json.loads(json.dumps(floats.astype(str).astype(float).tolist()))
        ),
        "as double": _encode_body(floats.astype(float).tolist()),
        "pixels": _encode_body(pixels.tolist()),
    }


def _encode_body(value: Any) -> bytes:
    return json.dumps({"instances": value}).encode()


def _measure_cpu_seconds(
    predict: Callable[[bytes, ModelFunction], JsonText], body: bytes, model: ModelFunction
) -> float:
    started = time.process_time()
    predict(body, model)
    return time.process_time() - started


def main() -> None:
    """Measure, and print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    # Configure malloc as `server.app` does for a real server; both codecs gain from it.
    malloc.configure_malloc()
    models: dict[str, ModelFunction] = {
        "a thousand scores": lambda x: x.reshape(1, -1)[:, :1000],
        "an image": lambda x: x,
    }
    for title, model in models.items():
        print(f"response: {title}")
        for kind, body in make_request_bodies().items():
            turns = [
                (
                    _measure_cpu_seconds(predict_with_json_module, body, model),
                    _measure_cpu_seconds(predict_with_server_codec, body, model),
                )
                for _ in range(arguments.rounds)
            ]
            print_ratio(kind, turns)
    measure_over_sockets(arguments.rounds)


def measure_over_sockets(rounds: int) -> None:
    """Measure whole requests over sockets, and print ratios."""
    print("response: a thousand scores, over a socket")
    with serving("plain", "json_program") as plain, serving("ours", "json_program") as ours:
        for kind, body in make_request_bodies().items():
            turns = [
                (_measure_server_cpu_seconds(plain, body), _measure_server_cpu_seconds(ours, body))
                for _ in range(rounds)
            ]
            print_ratio(kind, turns)


def _measure_server_cpu_seconds(side: Side, body: bytes) -> float:
    """Send requests, and return the server's processor time per request in seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", side.port, timeout=60)
    with contextlib.closing(connection):
        before = side.cpu_seconds()
        for _ in range(REQUESTS):
            connection.request("POST", "/v1/models/half:predict", body)
            response = connection.getresponse()
            scores = json.loads(response.read())["predictions"]
            assert (response.status, len(scores[0])) == (200, 1000)
        return (side.cpu_seconds() - before) / REQUESTS


def print_ratio(kind: str, turns: list[tuple[float, float]]) -> None:
    """Print the medians in milliseconds, and the ratio of both codecs in the same round.

    Args:
      kind: The kind of numbers in the request.
      turns: Processor seconds of the json module and of the server's codec, for each round.
    """
    plain_ms, ours_ms = (statistics.median(times) * 1000 for times in zip(*turns, strict=True))
    ratios = sorted(plain / ours for plain, ours in turns)
    print(
        f"  {kind:14} {plain_ms:7.1f} ms, ours {ours_ms:6.1f} ms: "
        f"{statistics.median(ratios):.1f} times as fast ({ratios[0]:.1f} to {ratios[-1]:.1f})"
    )


if __name__ == "__main__":
    main()
