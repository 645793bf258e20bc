"""`tpuserve serve --sample` answers the request that the README shows."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.command import serve
from server.sample import digits
from tests import processes
from tests.preloaded.process import PreloadedProcess
from tpuserve.errors import InvalidSetting

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("flag", ["--model_base_path=/models/half", "--model_config_file=m.config"])
def test_sample_beside_another_model_is_refused(flag: str) -> None:
    with pytest.raises(InvalidSetting, match="Remove one of the two flags"):
        serve.main(["--sample", flag], standalone_mode=False)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("AIP_STORAGE_URI", "gs://models/half"), ("SAGEMAKER_BIND_TO_PORT", "8080")],
)
def test_sample_beside_a_variable_of_a_cloud_service_is_refused(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidSetting, match=f"{variable}={value} .* Remove the flag or"):
        serve.main(["--sample"], standalone_mode=False)


@pytest.fixture(params=["", "1"], ids=["{serve}", "{serve, tpu}"])
def port(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The REST port of a server of the sample model that has printed the request to send."""
    if request.param:
        monkeypatch.setenv("TPUSERVE_EMULATED_TPU", request.param)
    rpc_port, rest_port = processes.free_ports(2)
    command = [sys.executable, "-m", "tpuserve", "serve", "--sample"]
    with PreloadedProcess(
        [*command, f"--port={rpc_port}", f"--rest_api_port={rest_port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            printed = ""
            for line in process.stdout:
                printed += line
                if printed.endswith(f"{digits.curl_command(rest_port)}\n"):
                    break
            assert "server.app: ready\nAsk the sample model" in printed
            yield rest_port
        finally:
            process.terminate()
            process.communicate(timeout=60)


@pytest.mark.numeric
def test_printed_request_is_that_of_the_readme_and_gets_its_answer_at_once(port: int) -> None:
    (block,) = re.findall(r"```console\n\$ (curl .*?)```", README.read_text(), re.DOTALL)
    command, _, reply = block.partition(":predict\n")
    assert f"{command}:predict" == digits.curl_command(8501)
    answer = subprocess.run(
        digits.curl_command(port), shell=True, capture_output=True, text=True, timeout=60
    )
    (answered,) = json.loads(answer.stdout)["predictions"]
    (expected,) = json.loads(reply)["predictions"]
    assert answered["digit"] == expected["digit"] == 3
    assert answered["probability"] == pytest.approx(expected["probability"], abs=1e-5)
