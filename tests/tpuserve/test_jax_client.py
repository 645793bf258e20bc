import importlib.metadata

import pytest

from tpuserve import jax_client
from tpuserve.errors import ExtraNotInstalled, TpuInUse, TpuNotFound

jax = pytest.importorskip("jax")


def fail_with(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let jax fail as if it could not start a device."""

    def local_devices(backend: str) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(jax, "local_devices", local_devices)


@pytest.mark.parametrize(
    "text",
    [
        "ABORTED: The TPU is already in use by process with pid 7. Not attempting to load it.",
        "ABORTED: The TPU is already in use by another process probably owned by another user.",
    ],
)
def test_a_tpu_in_use_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    fail_with(monkeypatch, f"Unable to initialize backend 'tpu': {text}")
    with pytest.raises(TpuInUse, match="another process uses it.*`tpuserve doctor` lists"):
        jax_client.list_devices("cpu")


def test_missing_devices_are_one_line_that_names_the_doctor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_with(monkeypatch, "No jellyfish device found.\nsecond line")
    with pytest.raises(TpuNotFound, match="No jellyfish device found. Run `tpuserve doctor`"):
        jax_client.list_devices("cpu")


def test_an_untested_version_of_jax_is_an_error_that_names_the_tested_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.11.0")
    with pytest.raises(ExtraNotInstalled, match=r"from 0.8 to below 0.11; found 0.11.0. Install"):
        jax_client.list_devices("cpu")
