"""The data plane answers Predict requests without any frontend."""

from collections.abc import Mapping

import numpy as np
import pytest

from server.dataplane import ModelSpec
from server.servables.servable import Array
from tests.server.waiting_data_plane import WaitingDataPlane
from tpuserve.errors import (
    InvalidInput,
    InvalidInputNames,
    ModelExecutionError,
    ModelNotFound,
    SignatureNotFound,
)

HALF = ModelSpec("half")
TWO = ModelSpec("half", signature_name="two")


def ints(**values: int) -> Mapping[str, Array]:
    return {name: np.array([value], np.int32) for name, value in values.items()}


def test_answer_says_who_gave_it(dataplane: WaitingDataPlane) -> None:
    answer = dataplane.predict(HALF, lambda _: {"x": np.array([1, 2, 5], np.float32)})
    assert answer.outputs["y"].tolist() == [2.5, 3.0, 4.5]
    assert (answer.model, answer.version, answer.signature_name) == ("half", 3, "serving_default")


def test_inputs_are_read_with_the_signature_that_is_asked_for(dataplane: WaitingDataPlane) -> None:
    answer = dataplane.predict(TWO, lambda signature: ints(**dict.fromkeys(signature.inputs, 4)))
    assert {name: array.tolist() for name, array in answer.outputs.items()} == {
        "sum": [8],
        "difference": [0],
    }


def test_output_filter_leaves_only_what_it_names(dataplane: WaitingDataPlane) -> None:
    answer = dataplane.predict(TWO, lambda _: ints(a=5, b=2), ["difference"])
    assert list(answer.outputs) == ["difference"]


def test_signature_without_inputs_answers(dataplane: WaitingDataPlane) -> None:
    target = ModelSpec("half", signature_name="nothing")
    assert dataplane.predict(target, lambda _: {}).outputs["y"].tolist() == [7]


def test_unknown_model_is_not_found(dataplane: WaitingDataPlane) -> None:
    with pytest.raises(ModelNotFound):
        dataplane.predict(ModelSpec("other"), lambda _: {})


def test_unknown_signature_is_named(dataplane: WaitingDataPlane) -> None:
    with pytest.raises(SignatureNotFound, match='^Serving signature key "S" not found.$'):
        dataplane.predict(ModelSpec("half", signature_name="S"), lambda _: {})


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (
            {},
            "input size does not match signature: 0!=2 len({}) != len({a,b}). Sent extra: {}. "
            "Missing but required: {a,b}.",
        ),
        (
            {"a": 1, "b": 2, "c": 3},
            "input size does not match signature: 3!=2 len({a,b,c}) != len({a,b}). Sent extra: "
            "{c}. Missing but required: {}.",
        ),
        (
            {"a": 1, "c": 3},
            "Signature input alias: b(feed name: b:0) not found in request and no default value "
            "provided. Inputs expected to be in the request {a,c}, or default input alias set: ",
        ),
    ],
)
def test_other_inputs_than_the_signatures_are_refused(
    dataplane: WaitingDataPlane, sent: dict[str, int], text: str
) -> None:
    with pytest.raises(InvalidInputNames) as caught:
        dataplane.predict(TWO, lambda _: ints(**sent))
    assert str(caught.value) == text


def test_unknown_output_is_refused(dataplane: WaitingDataPlane) -> None:
    with pytest.raises(InvalidInput) as caught:
        dataplane.predict(TWO, lambda _: ints(a=1, b=2), ["q"])
    assert str(caught.value) == (
        "output tensor alias not found in signature: q Outputs expected to be in the set "
        "{difference,sum}."
    )


def test_output_that_is_asked_for_twice_is_refused(dataplane: WaitingDataPlane) -> None:
    with pytest.raises(InvalidInput, match="^duplicate output tensor alias: sum$"):
        dataplane.predict(TWO, lambda _: ints(a=1, b=2), ["sum", "sum"])


def test_model_that_fails_is_told_to_who_runs_the_server(
    dataplane: WaitingDataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ModelExecutionError):
        dataplane.predict(
            ModelSpec("half", signature_name="failing"), lambda _: {"x": np.ones(1, np.float32)}
        )
    assert "half/3: signature failing failed: out of memory" in caplog.messages
