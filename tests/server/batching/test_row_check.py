"""A signature whose rows depend on each other is not batched."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission.cancellation import Cancellation
from server.batching.row_check import RowCheck
from server.config.batching_parameters import BatchingParameters
from server.servables.servable import Array, Model
from tests.server.fakes import FakeModel, spec
from tpuserve.errors import DeadlineExceeded, InvalidInput
from tpuserve.saved_model.signature import Signature, TensorSpec

DIRECTORY = Path("/models/half/1")
ROWS = {"x": np.array([[1, 2], [3, 5], [4, 4]], np.float32)}


class FunctionModel(FakeModel):
    """A model with one signature, which applies a given function to the input x."""

    signatures = {"serving_default": Signature({"x": spec("float32")}, {"y": spec("float32")})}

    def __init__(self, compute: Any) -> None:
        super().__init__()
        self.compute = compute
        self.sizes: list[int] = []

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        self.sizes.append(len(inputs["x"]))
        return {"y": self.compute(inputs["x"])}


def reason(
    compute: Any,
    parameters: BatchingParameters | None = None,
    rows: Mapping[str, Array] = ROWS,
    signature: Signature | None = None,
) -> str | None:
    """Return why the model's signature is not batched; None if it is batched."""
    model = FunctionModel(compute)
    if signature is not None:
        model.signatures = {"serving_default": signature}

    def make_rows(model: Model, directory: Path, name: str) -> Mapping[str, Array]:
        return rows

    check = RowCheck(make_rows)
    return check(model, DIRECTORY, parameters or BatchingParameters()).get("serving_default")


def test_rows_that_are_computed_alone_may_share_a_batch() -> None:
    assert reason(lambda x: x / 2 + 2) is None


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3),  # batch normalisation
        lambda x: np.exp(x) / np.exp(x).sum(0),  # softmax over the rows
        lambda x: np.cumsum(x, 0),
        lambda x: x.argmax(0)[None].repeat(len(x), 0),
    ],
)
def test_rows_that_depend_on_each_other_are_found(compute: Any) -> None:
    message = reason(compute)
    assert message is not None
    assert message.startswith("its rows depend on each other: output y of one row ")


def test_rounding_is_no_dependence_and_a_real_difference_is() -> None:
    # The tolerance is relative to the largest output of the first row, which is 2: 2 * 2^-11.5,
    # where 2^-11.5 is the square root of float32's precision.
    assert reason(lambda x: x + np.float32(2 * 2**-12) * (len(x) > 1)) is None
    assert reason(lambda x: x + np.float32(2 * 2**-11) * (len(x) > 1)) is not None
    # Integers are not rounded.
    assert reason(lambda x: x.astype(np.int64) + (len(x) > 1)) is not None


def test_nan_equals_nan() -> None:
    assert reason(lambda x: x * np.float32("nan")) is None


def test_the_check_runs_the_sizes_that_requests_will_run() -> None:
    model = FunctionModel(lambda x: x)
    RowCheck(lambda model, directory, name: ROWS)(
        model, DIRECTORY, BatchingParameters(max_batch_size=8, allowed_batch_sizes=(2, 8))
    )
    assert model.sizes == [8, 2, 2, 2]


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        (TensorSpec("x:0", "float32", (8, 2)), spec("float32"), "its input x has no dimension"),
        (TensorSpec("x:0", "float32", ()), spec("float32"), "its input x has no dimension"),
        (spec("float32"), TensorSpec("y:0", "float32", ()), "its output y has no dimension"),
        (spec("string"), TensorSpec("y:0", "float32", (None, None)), "its output y is float32 ["),
        (spec("float32"), TensorSpec("y:0", "float32", (None, None)), "its output y is float32 ["),
    ],
)
def test_a_signature_without_rows_or_with_rows_of_any_size_is_not_batched(
    inputs: TensorSpec, outputs: TensorSpec, text: str
) -> None:
    message = reason(lambda x: x, signature=Signature({"x": inputs}, {"y": outputs}))
    assert message is not None
    assert message.startswith(text)


def test_a_model_that_cannot_be_checked_is_not_batched() -> None:
    def refuse(x: Array) -> Array:
        raise InvalidInput("x is no image")

    message = reason(refuse)
    assert message is not None
    assert "cannot be checked" in message
    assert "x is no image" in message
    assert "warm-up requests" in message
    assert reason(lambda x: 1 / 0) is not None
    # The number of rows of the output differs from that of the input.
    assert reason(lambda x: x[:1]) is not None


def test_the_time_of_the_check_is_limited() -> None:
    times = iter([0.0, 1.0, 9.0, 11.0])
    model = FunctionModel(lambda x: x)
    check = RowCheck(lambda model, directory, name: ROWS, 10, lambda: next(times))
    (message,) = check(model, DIRECTORY, BatchingParameters()).values()
    assert message == "the check of its rows took longer than 10 seconds"
    assert model.sizes == [3, 1]

    def stop(x: Array) -> Array:
        raise DeadlineExceeded("the run was stopped")

    assert reason(stop) == "the check of its rows took longer than 10 seconds"
