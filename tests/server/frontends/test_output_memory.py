"""The memory that is reserved for a classification or a regression covers its encoding."""

import numpy as np
import pytest

from server.codec import responses
from server.dataplane import Classification, Regression
from server.frontends import output_memory
from tests.preloaded.process import run_preloaded
from tests.server.peak_memory import measure_bytes

EXAMPLES, CLASSES = 100, 500


def classification(label: bytes | None, examples: int = EXAMPLES) -> Classification:
    scores = np.random.default_rng(0).random((examples, CLASSES), np.float32)
    labels = None if label is None else np.full(scores.shape, label, object)
    return Classification("model", 1, "signature", labels, scores)


def regression(examples: int) -> Regression:
    values = np.random.default_rng(0).random(examples, np.float32)
    return Regression("model", 1, "signature", values)


@pytest.mark.slow
@pytest.mark.parametrize("label", [None, b"", b"a" * 10, b"a" * 1000])
def test_json_of_a_classification_needs_no_more_than_is_reserved(label: bytes | None) -> None:
    result = classification(label)
    reserved: list[int] = []
    output_memory.reserve_for_result_as_json(result, reserved.append)
    num_bytes = measure_bytes(
        lambda: responses.encode_classifications(result.classes, result.scores)
    )
    assert num_bytes <= reserved[0] <= 6 * num_bytes


def test_json_of_a_regression_needs_no_more_than_is_reserved() -> None:
    result = regression(100_000)
    reserved: list[int] = []
    output_memory.reserve_for_result_as_json(result, reserved.append)
    num_bytes = measure_bytes(lambda: responses.encode_regressions(result.values))
    assert num_bytes <= reserved[0] <= 6 * num_bytes


def test_small_result_reserves_nothing() -> None:
    reserved: list[int] = []
    for reserve in (
        output_memory.reserve_for_result_as_json,
        output_memory.reserve_for_result_as_message,
    ):
        reserve(Classification("model", 1, "signature", None, None), reserved.append)
        reserve(regression(3), reserved.append)
    assert not reserved


# Measure in another process, because the memory of protobuf's messages is only visible as memory of
# the process.
MEASURE_MESSAGE = r"""
import re
from pathlib import Path
from tensorflow_serving.apis import classification_pb2, regression_pb2
from server.frontends.grpc.services import inference
from server.frontends import output_memory
from tests.server.frontends.test_output_memory import classification, regression

def max_memory():
    kibibytes = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]
    return 1024 * int(kibibytes)

result, message, write = {arguments}
reserved = []
output_memory.reserve_for_result_as_message(result, reserved.append)
before = max_memory()
write(message.result, result)
message.SerializeToString()
print(reserved[0], max_memory() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "classification(None, 2000), classification_pb2.ClassificationResponse(), "
        "inference._write_classification",
        "classification(b'a' * 100, 400), classification_pb2.ClassificationResponse(), "
        "inference._write_classification",
        "regression(1_000_000), regression_pb2.RegressionResponse(), inference._write_regression",
    ],
    ids=["scores", "labels", "values"],
)
def test_message_needs_no_more_than_is_reserved(arguments: str) -> None:
    program = MEASURE_MESSAGE.replace("{arguments}", arguments)
    finished = run_preloaded(["-c", program])
    assert finished.returncode == 0, finished.stderr
    reserved, needed = map(int, finished.stdout.split())
    assert needed <= reserved <= 6 * needed
