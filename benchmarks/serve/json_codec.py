"""An image in JSON to an array and back, against json.loads, np.array and json.dumps.

    python -m benchmarks.serve.json_codec [--rounds 7]

150,528 floats; first the codec alone, then whole requests over a socket to the same ASGI server
around either. The sides take turns, and what counts is the time that the processor spent on
each: a busy machine would tell little otherwise.
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

from benchmarks.serve.rest import Side, serving
from server.codec import json_parser, requests, responses
from server.codec.array_to_json import JsonText
from server.process import malloc
from server.servables.servable import Array
from tpuserve.saved_model.signature import Signature, TensorSpec

SHAPE = (1, 224, 224, 3)
TARGET = 5.0
# A turn over a socket: the time of a process is told in hundredths of a second.
REQUESTS = 20
_SIGNATURE = Signature({"x": TensorSpec("x:0", "float32", (None, 224, 224, 3))}, {})

Answer = Callable[[Array], Array]


def theirs(body: bytes, model: Answer) -> bytes:
    """What a server does that has only the standard library and numpy."""
    array = np.array(json.loads(body)["instances"], np.float32)
    return json.dumps({"predictions": model(array).tolist()}).encode()


def ours(body: bytes, model: Answer) -> JsonText:
    """What ours does."""
    arrays = requests.decode_inputs(json_parser.parse_json(body), _SIGNATURE)
    return responses.encode_row_format({"y": model(arrays["x"])})


def images() -> Mapping[str, bytes]:
    """Bodies, by what their numbers are like."""
    generator = np.random.default_rng(7)
    floats = generator.random(SHAPE, np.float32)
    pixels = (floats * 256).astype(int)
    return {
        "three digits": _body(np.round(floats.astype(float), 3).tolist()),
        "as float32": _body(json.loads(json.dumps(floats.astype(str).astype(float).tolist()))),
        "as double": _body(floats.astype(float).tolist()),
        "pixels": _body(pixels.tolist()),
    }


def _body(value: Any) -> bytes:
    return json.dumps({"instances": value}).encode()


def _seconds(work: Callable[[bytes, Answer], JsonText], body: bytes, model: Answer) -> float:
    started = time.process_time()
    work(body, model)
    return time.process_time() - started


def main() -> None:
    """Measures, and prints ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    # As `server.app` does; it is good for both sides.
    malloc.configure_malloc()
    models: dict[str, Answer] = {
        "a thousand scores": lambda x: x.reshape(1, -1)[:, :1000],
        "an image": lambda x: x,
    }
    for title, model in models.items():
        print(f"answered with {title}")
        for kind, body in images().items():
            turns = [
                (_seconds(theirs, body, model), _seconds(ours, body, model))
                for _ in range(arguments.rounds)
            ]
            report(kind, turns)
    over_sockets(arguments.rounds)


def over_sockets(rounds: int) -> None:
    """Measures whole requests, and prints ratios."""
    print("answered with a thousand scores, over a socket")
    with serving("plain", "json_program") as theirs, serving("ours", "json_program") as mine:
        for kind, body in images().items():
            turns = [
                (_seconds_of_server(theirs, body), _seconds_of_server(mine, body))
                for _ in range(rounds)
            ]
            report(kind, turns)


def _seconds_of_server(side: Side, body: bytes) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", side.port, timeout=60)
    with contextlib.closing(connection):
        before = side.cpu_seconds()
        for _ in range(REQUESTS):
            connection.request("POST", "/v1/models/half:predict", body)
            reply = connection.getresponse()
            scores = json.loads(reply.read())["predictions"]
            assert (reply.status, len(scores[0])) == (200, 1000)
        return (side.cpu_seconds() - before) / REQUESTS


def report(kind: str, turns: list[tuple[float, float]]) -> None:
    """Prints medians, and the ratio of the two in the same round."""
    baseline, mine = (statistics.median(each) * 1000 for each in zip(*turns, strict=True))
    ratios = sorted(their / our for their, our in turns)
    print(
        f"  {kind:14} {baseline:7.1f} ms, ours {mine:6.1f} ms: "
        f"{statistics.median(ratios):.1f} times as fast ({ratios[0]:.1f} to {ratios[-1]:.1f})"
    )


if __name__ == "__main__":
    main()
