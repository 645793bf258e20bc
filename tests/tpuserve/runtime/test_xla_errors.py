"""What XLA says of ops that it refuses."""

from tpuserve.runtime import xla_errors
from tpuserve.runtime.xla_errors import UnsupportedOp

_SAID = (
    "Detected unsupported operations when trying to compile graph __inference_f_27[] on "
    "XLA_CPU_JIT: AsString (No registered 'AsString' OpKernel for XLA_CPU_JIT devices compatible "
    "with node {{node a/spelled}}){{node a/spelled}}\nThe op is created at: \n\t [[call]]"
)


def test_an_op_without_a_form_is_named_with_its_node() -> None:
    assert xla_errors.find_unsupported_ops(_SAID) == (UnsupportedOp("AsString", "a/spelled"),)


def test_an_op_that_is_refused_twice_is_named_once() -> None:
    assert xla_errors.find_unsupported_ops(_SAID + _SAID) == (
        UnsupportedOp("AsString", "a/spelled"),
    )


def test_an_input_that_would_have_to_be_a_constant_is_named() -> None:
    said = "Input 1 to node `shaped` with op Reshape must be a compile-time constant.\n\nXLA"
    assert xla_errors.find_nonconstant_inputs(said) == (UnsupportedOp("Reshape", "shaped", 1),)


def test_another_error_names_nothing() -> None:
    said = "Incompatible shapes: [2] vs. [3] [[{{node add}}]]"
    assert xla_errors.find_unsupported_ops(said) == xla_errors.find_nonconstant_inputs(said) == ()
