from pathlib import Path

import pytest

from tpuserve.diagnosis.environment import check_environment, read_variables
from tpuserve.diagnosis.request import Finding, Status, read_request


def list_not_ok(environ: dict[str, str], *, has_tpu: bool = True) -> list[Finding]:
    """Return the findings that are not ok."""
    findings = check_environment(environ, read_request(environ, has_tpu))
    return [finding for finding in findings if finding.status is not Status.OK]


def test_only_variables_about_tpus_are_shown() -> None:
    environ = {"HOME": "/root", "TPU_WORKER_ID": "0", "PJRT_DEVICE": "TPU", "AWS_KEY": "secret"}
    assert read_variables(environ) == {"PJRT_DEVICE": "TPU", "TPU_WORKER_ID": "0"}


@pytest.mark.parametrize("ending", ["KEY", "TOKEN", "SECRET", "PASSWORD"])
def test_a_secret_is_not_shown(ending: str) -> None:
    environ = {f"TPUSERVE_API_{ending}": "sesame"}
    assert read_variables(environ) == {f"TPUSERVE_API_{ending}": "(set)"}
    (finding,) = check_environment(environ, read_request(environ, has_tpu=False))
    assert finding.message == f"TPUSERVE_API_{ending}=(set)"


def test_an_empty_environment_is_no_finding() -> None:
    assert list_not_ok({}) == []


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"JAX_PLATFORMS": "cpu"}, "JAX_PLATFORMS=cpu keeps jax from the platform tpu"),
        ({"TPU_LIBRARY_PATH": "/none/libtpu.so"}, "TPU_LIBRARY_PATH=/none/libtpu.so is no file"),
        ({"TPU_WORKER_HOSTNAMES": "t1,t2,t3,t4"}, "TPU_WORKER_HOSTNAMES names 4 hosts"),
    ],
)
def test_a_setting_that_a_tpu_run_fails_with_is_a_problem(
    environ: dict[str, str], says: str
) -> None:
    (finding,) = list_not_ok(environ)
    assert finding.status is Status.PROBLEM
    assert finding.message.startswith(says)
    assert finding.advice


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"PJRT_DEVICE": "TPU"}, "PJRT_DEVICE=TPU is a variable of PyTorch/XLA"),
        ({"TPU_VISIBLE_CHIPS": "0,1"}, "TPU_VISIBLE_CHIPS=0,1 restricts a process"),
        ({"TPUSERVE_EMULATED_TPU": "8"}, "this machine has a TPU, and the environment requests"),
        ({"TPUSERVE_PJRT_PLATFORM": "cpu"}, "this machine has a TPU, and TPUSERVE_PJRT_PLATFORM"),
    ],
)
def test_a_setting_that_may_surprise_is_a_note(environ: dict[str, str], says: str) -> None:
    (finding,) = list_not_ok(environ)
    assert finding.status is Status.NOTE
    assert finding.message.startswith(says)
    assert finding.advice


def test_an_installed_library_and_the_own_host_are_no_finding(tmp_path: Path) -> None:
    library = tmp_path / "libtpu.so"
    library.touch()
    environ = {"TPU_LIBRARY_PATH": str(library), "TPU_WORKER_HOSTNAMES": "localhost"}
    assert list_not_ok({**environ, "JAX_PLATFORMS": "tpu,cpu"}) == []


def test_the_cpu_platform_without_the_pjrt_runtime_has_no_effect() -> None:
    (finding,) = list_not_ok({"TPUSERVE_PJRT_PLATFORM": "cpu"}, has_tpu=False)
    assert finding.advice == ("Set TPUSERVE_TPU_RUNTIME=pjrt as well",)
    environ = {"TPUSERVE_PJRT_PLATFORM": "cpu", "TPUSERVE_TPU_RUNTIME": "pjrt"}
    assert list_not_ok(environ, has_tpu=False) == []
