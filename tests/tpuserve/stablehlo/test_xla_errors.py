"""XLA's messages about ops that it cannot compile are parsed."""

import pytest

from tpuserve.stablehlo import xla_errors
from tpuserve.stablehlo.xla_errors import UnsupportedOp

_MESSAGE = (
    "Detected unsupported operations when trying to compile graph __inference_f_27[] on "
    "XLA_CPU_JIT: AsString (No registered 'AsString' OpKernel for XLA_CPU_JIT devices compatible "
    "with node {{node a/spelled}}){{node a/spelled}}\nThe op is created at: \n\t [[call]]"
)


def test_unsupported_op_is_found_with_its_node() -> None:
    assert xla_errors.find_unsupported_ops(_MESSAGE) == (UnsupportedOp("AsString", "a/spelled"),)


def test_unsupported_op_of_a_called_function_is_found_with_its_node() -> None:
    message = _MESSAGE.replace("{{node", "{{function_node __inference_f_2}}{{node")
    assert xla_errors.find_unsupported_ops(message) == (UnsupportedOp("AsString", "a/spelled"),)


def test_op_that_a_message_names_twice_is_found_once() -> None:
    assert xla_errors.find_unsupported_ops(_MESSAGE + _MESSAGE) == (
        UnsupportedOp("AsString", "a/spelled"),
    )


def test_input_that_must_be_a_constant_is_found() -> None:
    message = "Input 1 to node `shaped` with op Reshape must be a compile-time constant.\n\nXLA"
    assert xla_errors.find_nonconstant_inputs(message) == (UnsupportedOp("Reshape", "shaped", 1),)


def test_message_about_another_error_contains_no_ops() -> None:
    message = "Incompatible shapes: [2] vs. [3] [[{{node add}}]]"
    assert xla_errors.find_unsupported_ops(message) == ()
    assert xla_errors.find_nonconstant_inputs(message) == ()


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            "Failed getting HLO text: 'lengths must be equal: 2 vs. 4\nStack trace:\nfile:10\n"
            "\t [[{{node array/split}}]]\n\ttf2xla conversion failed [[{{node call}}]]'",
            {"array/split": "lengths must be equal: 2 vs. 4"},
        ),
        (
            "It needs a fixed size. If you can, set one.\n\t [[{{function_node f}}{{node stack}}]]",
            {"stack": "It needs a fixed size"},
        ),
        ("Bad shapes: [2] vs. [3] [[{{node add}}]]", {"add": "Bad shapes: [2] vs. [3]"}),
        ("Incompatible shapes: [2] vs. [3]", {}),
    ],
)
def test_any_other_error_tells_its_first_node_and_sentence(
    message: str, found: dict[str, str]
) -> None:
    assert xla_errors.find_failure(message) == found
