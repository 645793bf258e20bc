"""Measures how long the most costly request bodies take to parse, compared with an ordinary body.

    python -m benchmarks.serve.attacks.parse_cost [--bytes=300000] [--kinds=12]

Prints the processor time of parsing and decoding, in nanoseconds per byte and as a multiple of the
time for an ordinary body of the same size: the values of pixels for predict requests, the floats of
one feature for classify requests. The most costly kinds of bodies come first.
"""

import argparse
import contextlib
import gc
import time
from collections.abc import Callable

from benchmarks.serve.attacks.adversarial_bodies import EXAMPLES, NUMBERS, PIXELS, STRINGS, Build
from server.codec import examples, json_parser, requests
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import Signature, TensorSpec

_ROUNDS = 9


def main() -> None:
    """Print the most costly kinds of bodies."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bytes", type=int, default=300_000, help="size of each body")
    parser.add_argument("--kinds", type=int, default=12, help="number of lines")
    options = parser.parse_args()
    gc.disable()  # Disable the garbage collector, as the server's parse processes do.
    groups = ((NUMBERS, "float32", PIXELS), (STRINGS, "string", PIXELS))
    lines = [
        _compare(name, build, dtype, ordinary, options.bytes)
        for kinds, dtype, ordinary in (*groups, (EXAMPLES, "", EXAMPLES["floats of one feature"]))
        for name, build in kinds.items()
    ]
    for ratio, nanoseconds, name in sorted(lines, reverse=True)[: options.kinds]:
        print(f"{ratio:6.1f}x {nanoseconds:7.1f} ns/byte  {name}")


def _compare(
    name: str, build: Build, dtype: str, ordinary: Build, size: int
) -> tuple[float, float, str]:
    body, ordinary_body = build(size), ordinary(size)
    ordinary_dtype = "float32" if dtype else ""
    shortest = ordinary_shortest = float("inf")
    for _ in range(_ROUNDS):
        shortest = min(shortest, _measure(lambda: _decode(body, dtype)))
        ordinary_seconds = _measure(lambda: _decode(ordinary_body, ordinary_dtype))
        ordinary_shortest = min(ordinary_shortest, ordinary_seconds)
    per_byte, ordinary_per_byte = shortest / len(body), ordinary_shortest / len(ordinary_body)
    return per_byte / ordinary_per_byte, per_byte * 1e9, name


def _measure(function: Callable[[], None]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


def _decode(body: bytes, dtype: str) -> None:
    """Parse and decode a body of a predict request, or of a classify request without dtype."""
    with contextlib.suppress(TpuserveError):
        document = json_parser.parse_json(body)
        requests.get_signature_name(document)
        if dtype:
            signature = Signature({"x": TensorSpec("x:0", dtype, None)}, {})
            requests.decode_inputs(document, signature)
        else:
            examples.decode_examples(document)


if __name__ == "__main__":
    main()
