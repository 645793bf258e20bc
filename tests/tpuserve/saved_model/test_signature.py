"""Inputs are completed by defaults and refused in TensorFlow Serving's words."""

import pytest

from tpuserve.errors import InvalidInputNames
from tpuserve.saved_model.signature import Signature, TensorSpec


def spec(name: str) -> TensorSpec:
    return TensorSpec(f"{name}:0", "float32", ())


PLAIN = Signature({"x": spec("x"), "y": spec("y")}, {})
WITH_DEFAULT = Signature({"x": spec("x"), "y": spec("y")}, {}, defaults={"y": 7})


def refusal(signature: Signature, *names: str) -> str:
    with pytest.raises(InvalidInputNames) as caught:
        signature.complete(dict.fromkeys(names, 1))
    return str(caught.value)


def test_right_inputs_are_handed_on_as_they_are() -> None:
    sent = {"x": 1, "y": 2}
    assert PLAIN.complete(sent) is sent
    assert WITH_DEFAULT.complete(sent) is sent


def test_default_stands_in_for_what_is_left_out() -> None:
    assert WITH_DEFAULT.complete({"x": 1}) == {"x": 1, "y": 7}


def test_other_number_of_inputs_is_told() -> None:
    assert refusal(PLAIN) == (
        "input size does not match signature: 0!=2 len({}) != len({x,y}). Sent extra: {}. "
        "Missing but required: {x,y}."
    )
    assert refusal(WITH_DEFAULT, "x", "y", "z").startswith(
        "input size does not match signature: 3!=2 len({x,y,z}) != len({x,y}). Sent extra: {z}."
    )


def test_missing_input_without_a_default_is_told() -> None:
    assert refusal(PLAIN, "x", "z") == (
        "Signature input alias: y(feed name: y:0) not found in request and no default value "
        "provided. Inputs expected to be in the request {x,y}, or default input alias set: {}"
    )
    assert "default input alias set: {y}" in refusal(WITH_DEFAULT, "y")


def test_unknown_input_beside_a_default_is_told() -> None:
    assert refusal(WITH_DEFAULT, "x", "z") == (
        "Inputs contains invalid name. Used request inputs: {x}, request input: {x,z}"
    )
