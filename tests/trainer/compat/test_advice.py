import pytest

import tpuserve
from tpuserve.errors import UnsupportedOnTpu
from trainer.compat import launch

REFUSED = (
    "Detected unsupported operations when trying to compile graph c[] on XLA_CPU_JIT: PyFunc (No "
    "registered 'PyFunc' OpKernel for XLA_CPU_JIT devices compatible with node {{node ask}})"
)


def test_advice_for_an_op_that_a_tpu_cannot_run_is_outside_compilation() -> None:
    with tpuserve.emulated_tpu(8):
        error_advice = launch.get_error_advice(ValueError(REFUSED))
    assert error_advice is not None
    assert error_advice.replaces_traceback
    assert error_advice.text.startswith(
        "a TPU cannot run PyFunc (ask). Wrap the op in tpu.outside_compilation"
    )


def test_an_error_of_the_trainer_about_an_op_needs_no_traceback() -> None:
    error_advice = launch.get_error_advice(UnsupportedOnTpu("no AsString on a TPU"))
    assert error_advice == launch.Advice("no AsString on a TPU", replaces_traceback=True)


@pytest.mark.parametrize(
    "message", ["", "No OpKernel was registered to support Op 'Mystery'", "Op TPUExecute is slow"]
)
def test_other_errors_get_no_advice(message: str) -> None:
    assert launch.get_error_advice(ValueError(message)) is None


def test_missing_tpu_op_gets_no_advice_if_there_is_a_tpu() -> None:
    error = ValueError("No OpKernel was registered to support Op 'TPUCompile' used by")
    with tpuserve.emulated_tpu(8):
        assert launch.get_error_advice(error) is None
