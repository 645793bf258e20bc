import pytest

import tpuserve
from trainer.compat import advice

REFUSED = (
    "Detected unsupported operations when trying to compile graph c[] on XLA_CPU_JIT: PyFunc (No "
    "registered 'PyFunc' OpKernel for XLA_CPU_JIT devices compatible with node {{node ask}})"
)


def test_what_a_tpus_compiler_refuses_goes_to_the_host() -> None:
    with tpuserve.emulated_tpu(8):
        advised = advice.get_error_advice(ValueError(REFUSED))
    assert advised is not None
    assert advised.startswith("a TPU's compiler has no form for PyFunc (ask). Wrap it in tpu.outs")


@pytest.mark.parametrize(
    "message", ["", "No OpKernel was registered to support Op 'Mystery'", "Op TPUExecute is slow"]
)
def test_other_errors_speak_for_themselves(message: str) -> None:
    assert advice.get_error_advice(ValueError(message)) is None


def test_who_has_a_tpu_is_not_told_to_have_one() -> None:
    error = ValueError("No OpKernel was registered to support Op 'TPUCompile' used by")
    with tpuserve.emulated_tpu(8):
        assert advice.get_error_advice(error) is None
