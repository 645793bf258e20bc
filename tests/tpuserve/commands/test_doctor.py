import importlib.util
import json

import pytest
from click.testing import CliRunner

from tpuserve import cli
from tpuserve.commands.doctor import doctor

needs_jax = pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="jax is not installed")


def run_doctor(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["doctor", *arguments])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def test_a_machine_without_a_tpu_says_so_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_doctor() == 0
    text = capsys.readouterr().out
    assert "no TPU: no TPU chip on the PCI bus" in text
    assert "tpuserve verify and tpuserve compile check an export; " in text
    assert text.endswith("no problem found\n")


@pytest.mark.slow
@needs_jax
def test_json_has_the_all_reduce_on_cpu_devices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUSERVE_TPU_RUNTIME", "pjrt")
    monkeypatch.setenv("TPUSERVE_PJRT_PLATFORM", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    assert run_doctor("--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["passed"]
    assert report["all_reduce"]["sums"] == [3, 3]
    assert report["tpu"]["num_chips"] == 0
    assert report["environment"]["TPUSERVE_TPU_RUNTIME"] == "pjrt"
    assert {finding["status"] for finding in report["findings"]} == {"ok", "note"}


def test_a_problem_is_shown_with_what_to_do_and_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUSERVE_TPU_RUNTIME", "xla")
    assert run_doctor() == 1
    text = capsys.readouterr().out
    assert "problem  environment  TPUSERVE_TPU_RUNTIME is 'xla'\n" in text
    assert "Set it to pjrt, tensorflow or emulated" in text
    assert text.endswith("1 problem found\n")


@pytest.mark.parametrize("timeout", ["0", "-1", "soon"])
def test_an_invalid_timeout_is_one_line(capsys: pytest.CaptureFixture[str], timeout: str) -> None:
    assert run_doctor("--timeout", timeout) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--timeout" in line


def test_the_help_describes_examples_and_exit_status() -> None:
    text = CliRunner().invoke(doctor, ["--help"]).output
    for word in ("TPUSERVE_PJRT_PLATFORM=cpu tpuserve doctor", "--json", "exit status"):
        assert word in text
