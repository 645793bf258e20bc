"""The parameter `tpu_kind`, by which a test runs on an emulated TPU and on PJRT devices."""

from typing import Any

import pytest

_MARKER = "on_pjrt_too"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that is marked with on_pjrt_too on PJRT devices too."""
    if metafunc.definition.get_closest_marker(_MARKER) is not None:
        metafunc.parametrize("tpu_kind", ["emulated", "pjrt"], indirect=True)


@pytest.fixture(autouse=True)
def tpu_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the TPU that `slope.tpu` and `tpuserve.emulated_tpu` return in this test."""
    kind: str = getattr(request, "param", "emulated")
    if kind != "emulated":
        pytest.importorskip("jax")
        # Import these modules here, because they import TensorFlow, which fast tests do not need.
        import tpuserve
        from tests.pjrt_devices import pjrt_devices
        from tests.trainer.backends.tpu import slope

        def make_devices(cores: int, hosts: int = 1, *, compiled: bool = True) -> Any:
            assert hosts == 1
            return pjrt_devices(cores)

        monkeypatch.setattr(slope, "tpu_kind", kind)
        monkeypatch.setattr(tpuserve, "emulated_tpu", make_devices)
    return kind
