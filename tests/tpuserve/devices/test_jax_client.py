import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tools.gpu_check import find_gpus
from tpuserve.devices import jax_client
from tpuserve.errors import Code, CodedError, ExtraNotInstalled, TpuNotFound

# Do not import jax to find out: every process that collects the tests would wait for the import.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")


def fail_with(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let jax fail as if it could not start a device."""

    def local_devices(backend: str) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr("jax.local_devices", local_devices)


@pytest.mark.parametrize(
    "text",
    [
        "ABORTED: The TPU is already in use by process with pid 7. Not attempting to load it.",
        "ABORTED: The TPU is already in use by another process probably owned by another user.",
    ],
)
def test_a_tpu_in_use_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    fail_with(monkeypatch, f"Unable to initialize backend 'tpu': {text}")
    with pytest.raises(
        CodedError,
        match="another process uses it.*`tpuserve doctor` lists",
        check=lambda error: error.code is Code.UNAVAILABLE,
    ):
        jax_client.list_devices("cpu")


def test_missing_devices_are_one_line_that_names_the_doctor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_with(monkeypatch, "No jellyfish device found.\nsecond line")
    with pytest.raises(TpuNotFound, match="No jellyfish device found. Run `tpuserve doctor`"):
        jax_client.list_devices("cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda"])
def test_both_names_of_gpus_are_the_platform_cuda(name: str) -> None:
    assert jax_client.find_platform({"TPUSERVE_PJRT_PLATFORM": name}) == "cuda"
    assert jax_client.platform_of(SimpleNamespace(platform=name)) == "cuda"


@pytest.mark.skipif(bool(find_gpus()), reason="this machine has a GPU")
def test_gpu_that_jax_does_not_find_is_one_line_that_names_the_plug_in() -> None:
    code = """
import os
from tpuserve.devices import jax_client
try:
    jax_client.list_devices("cuda")
except jax_client.TpuNotFound as error:
    print(error)
print(os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"], os.environ["TF_FORCE_GPU_ALLOW_GROWTH"])
"""
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "TF_FORCE_GPU_ALLOW_GROWTH": "false"}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    ).stdout
    assert printed == (
        "jax finds no GPU: it does not know the platform. Install its plug-in for CUDA (pip "
        "install 'jax[cuda12]'), and see whether nvidia-smi finds the GPU.\nfalse false\n"
    )


@pytest.mark.parametrize("version", ["0.11.0", "0.11rc1", "0.7.2", "1.0", "unknown"])
def test_an_untested_version_of_jax_is_an_error_that_names_the_tested_ones(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with pytest.raises(ExtraNotInstalled, match=f"from 0.9 to below 0.11; found {version}. Inst"):
        jax_client.list_devices("cpu")


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "0.10rc1", "0.10.3.dev20260101"])
def test_a_preview_of_a_tested_version_of_jax_is_accepted(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    jax_client.check_installed()
