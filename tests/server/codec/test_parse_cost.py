"""The time and the memory of parsing are at most a multiple of those of an ordinary body.

The memory is also at most the memory that is reserved for the parsing beforehand. The program
`benchmarks.serve.attacks.parse_cost` measures the multiples of the time on a quiet machine.
"""

import gc
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from benchmarks.serve.attacks.adversarial_bodies import (
    EXAMPLES,
    NUMBERS,
    PIXELS,
    STRINGS,
    Build,
    build_random,
    compress,
)
from server.codec import examples, json_parser, requests
from server.frontends.rest.transport.request_body import gunzip
from server.parsing.request_parser import estimate_memory_bytes, worst_memory_bytes
from tests.server.fakes import spec
from tests.server.peak_memory import measure_bytes
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import Signature

SIZE = 300_000
MEMORY_FACTOR = 20
# Five times the factor that is measured on a quiet machine, because other processes slow down the
# creation of many objects more than the parsing of numbers. A measurement above this factor is
# repeated, up to ATTEMPTS times.
TIME_FACTOR = 5 * 20
ATTEMPTS = 15
RANDOM = {f"random tokens {seed}": build_random(seed) for seed in range(10)}
CASES = [
    *[(name, build, "float32") for name, build in {**NUMBERS, **RANDOM}.items()],
    *[(name, build, "string") for name, build in {**STRINGS, **RANDOM}.items()],
    *[(name, build, "") for name, build in EXAMPLES.items()],
]
CASE_NAMES = [f"{name}-{dtype}" for name, _, dtype in CASES]
ORDINARY_EXAMPLES = EXAMPLES["floats of one feature"]


def decode(body: bytes, dtype: str) -> None:
    """Parse and decode a body of a predict request, or of a classify request without dtype."""
    try:
        document = json_parser.parse_json(body)
        requests.get_signature_name(document)
        if dtype:
            requests.decode_inputs(document, Signature({"x": spec(dtype)}, {}))
        else:
            examples.decode_examples(document)
    except TpuserveError:
        pass


def measure_seconds(function: Callable[[], None]) -> float:
    started = time.process_time()
    function()
    return time.process_time() - started


@pytest.fixture(autouse=True)
def _without_garbage_collection() -> Iterator[None]:
    # Disable the garbage collector, as a parse process does.
    gc.disable()
    yield
    gc.enable()


def assert_cheap(cost: Callable[[], None], ordinary: Callable[[], None]) -> None:
    """Check that `cost` takes at most `TIME_FACTOR` times the processor time of `ordinary`."""
    shortest, ordinary_shortest = np.inf, np.inf
    for _ in range(ATTEMPTS):
        shortest = min(shortest, measure_seconds(cost))
        ordinary_shortest = min(ordinary_shortest, measure_seconds(ordinary))
        if shortest <= TIME_FACTOR * ordinary_shortest:
            return
    pytest.fail(f"{shortest / ordinary_shortest:.1f} times the time of an ordinary body")


@pytest.mark.parametrize(("name", "build", "dtype"), CASES, ids=CASE_NAMES)
def test_time_is_a_small_multiple_of_that_of_an_ordinary_body(
    name: str, build: Build, dtype: str
) -> None:
    body, ordinary = build(SIZE), (PIXELS if dtype else ORDINARY_EXAMPLES)(SIZE)
    assert_cheap(lambda: decode(body, dtype), lambda: decode(ordinary, dtype and "float32"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "build", "dtype"), CASES, ids=CASE_NAMES)
def test_memory_is_reserved_and_that_of_an_ordinary_body_times_twenty(
    name: str, build: Build, dtype: str
) -> None:
    body, ordinary = build(SIZE), (PIXELS if dtype else ORDINARY_EXAMPLES)(SIZE)
    num_bytes = measure_bytes(lambda: decode(body, dtype))
    assert num_bytes <= estimate_memory_bytes(body) <= worst_memory_bytes(len(body))
    assert num_bytes <= MEMORY_FACTOR * measure_bytes(lambda: decode(ordinary, dtype and "float32"))


@pytest.mark.parametrize("build", [NUMBERS["blanks"], NUMBERS["empty objects"], PIXELS])
def test_compressed_body_takes_a_small_multiple_of_the_time_of_its_inflated_size(
    build: Build,
) -> None:
    compressed, ordinary = compress(build(SIZE)), PIXELS(SIZE)
    assert len(compressed) < SIZE / 100
    assert_cheap(lambda: decode(gunzip(compressed), "float32"), lambda: decode(ordinary, "float32"))


def test_time_is_linear_in_the_size() -> None:
    build = NUMBERS["short runs of brackets"]
    small, large = build(SIZE // 4), build(SIZE)
    assert_cheap(lambda: decode(large, "float32"), lambda: decode(small, "float32"))
