"""Inputs and outputs are checked, and refused in TensorFlow Serving's words."""

from dataclasses import FrozenInstanceError

import pytest

from tpuserve.errors import (
    InvalidInput,
    InvalidInputNames,
    SignatureNotFound,
    UnsupportedModel,
)
from tpuserve.saved_model.signature import Signature, TensorSpec, find_signature


def spec(name: str) -> TensorSpec:
    return TensorSpec(f"{name}:0", "float32", ())


PLAIN = Signature({"x": spec("x"), "y": spec("y")}, {})
WITH_DEFAULT = Signature({"x": spec("x"), "y": spec("y")}, {}, defaults={"y": 7})
TWO_OUTPUTS = Signature({}, {"y": spec("y"), "z": spec("z")})


def refusal(signature: Signature, *names: str) -> str:
    with pytest.raises(InvalidInputNames) as caught:
        signature.complete(dict.fromkeys(names, 1))
    return str(caught.value)


def test_complete_inputs_are_returned_unchanged() -> None:
    inputs = {"x": 1, "y": 2}
    assert PLAIN.complete(inputs) is inputs
    assert WITH_DEFAULT.complete(inputs) is inputs


def test_default_replaces_a_missing_input() -> None:
    assert WITH_DEFAULT.complete({"x": 1}) == {"x": 1, "y": 7}


def test_only_the_inputs_that_a_request_omits_get_their_defaults() -> None:
    signature = Signature(PLAIN.inputs, {}, defaults={"x": 6, "y": 7})
    assert signature.complete({"y": 1}) == {"x": 6, "y": 1}


def test_wrong_number_of_inputs_is_refused() -> None:
    assert refusal(PLAIN) == (
        "input size does not match signature: 0!=2 len({}) != len({x,y}). Sent extra: {}. "
        "Missing but required: {x,y}."
    )
    assert refusal(WITH_DEFAULT, "x", "y", "z").startswith(
        "input size does not match signature: 3!=2 len({x,y,z}) != len({x,y}). Sent extra: {z}."
    )
    assert refusal(PLAIN, "x").endswith("Sent extra: {}. Missing but required: {y}.")
    assert refusal(PLAIN, "x", "a", "b").endswith("Sent extra: {a,b}. Missing but required: {y}.")


def test_missing_input_without_a_default_is_refused() -> None:
    assert refusal(PLAIN, "x", "z") == (
        "Signature input alias: y(feed name: y:0) not found in request and no default value "
        "provided. Inputs expected to be in the request {x,z}, or default input alias set: "
    )
    assert "default input alias set: y" in refusal(WITH_DEFAULT, "y")


def test_unknown_input_is_refused_even_if_a_default_replaces_the_missing_one() -> None:
    assert refusal(WITH_DEFAULT, "x", "z") == (
        "Inputs contains invalid name. Used request inputs: x, request input: x,z"
    )


@pytest.mark.parametrize("outputs", [[], ["z"], ["z", "y"]])
def test_outputs_of_the_signature_are_accepted_in_any_order(outputs: list[str]) -> None:
    TWO_OUTPUTS.check_outputs(outputs)


def test_unknown_output_is_refused() -> None:
    with pytest.raises(InvalidInput) as error:
        TWO_OUTPUTS.check_outputs(["y", "q"])
    assert str(error.value) == (
        "output tensor alias not found in signature: q Outputs expected to be in the set {y,z}."
    )


@pytest.mark.parametrize("outputs", [["y", "y"], ["y", "z", "y"], ["z", "y", "y"]])
def test_output_that_is_requested_twice_is_refused(outputs: list[str]) -> None:
    with pytest.raises(InvalidInput) as error:
        TWO_OUTPUTS.check_outputs(outputs)
    assert str(error.value) == "duplicate output tensor alias: y"


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (None, "float32 <unknown rank>"),
        ((), "float32 []"),
        ((None,), "float32 [?]"),
        ((None, 28, 0), "float32 [?, 28, 0]"),
    ],
)
def test_text_of_a_tensor_shows_its_type_and_shape(
    shape: tuple[int | None, ...] | None, text: str
) -> None:
    assert str(TensorSpec("x:0", "float32", shape)) == text


def test_signatures_that_differ_only_in_their_defaults_are_equal() -> None:
    assert PLAIN == WITH_DEFAULT
    assert PLAIN != TWO_OUTPUTS


@pytest.mark.parametrize(("value", "attribute"), [(PLAIN, "inputs"), (spec("x"), "shape")])
def test_signature_and_its_tensors_cannot_be_changed(value: object, attribute: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, attribute, None)


def test_signature_is_found_by_its_name() -> None:
    assert find_signature({"a": PLAIN, "b": TWO_OUTPUTS}, "b") is TWO_OUTPUTS
    with pytest.raises(SignatureNotFound, match='^Serving signature key "c" not found.$'):
        find_signature({"a": PLAIN}, "c")


def test_requests_hold_no_sparse_or_composite_tensors() -> None:
    dense, sparse = spec("x"), TensorSpec("", "float32", ())
    Signature({"x": dense}, {"y": dense, "z": sparse}).check_single_tensors(["y"])
    with pytest.raises(UnsupportedModel) as error:
        Signature({"x": sparse}, {"y": dense}).check_single_tensors(["y"])
    assert str(error.value) == (
        "input 'x' is a sparse or composite tensor, which requests cannot hold: export a signature "
        "with its indices, values and shape."
    )
    with pytest.raises(UnsupportedModel, match="^output 'z' is .* hold: request other outputs, or"):
        Signature({"x": dense}, {"y": dense, "z": sparse}).check_single_tensors(["y", "z"])
