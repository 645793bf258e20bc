"""The metrics contain the present state of each version whenever they are exported."""

from pathlib import Path

from server.dataplane import state_gauges
from server.metrics import Metrics
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader
from tests.server.waiting_data_plane import WaitingDataPlane
from tpuserve.errors import LoweringError


def serve(loader: FakeLoader) -> tuple[Manager, Metrics]:
    metrics = Metrics()
    manager = Manager(loader)
    WaitingDataPlane(manager, metrics=metrics)
    return manager, metrics


def lines(metrics: Metrics, name: str) -> list[str]:
    all_lines = metrics.exposition().decode().splitlines()
    return [line for line in all_lines if line.startswith(name + "{")]


def aspire_version(manager: Manager, version: int, base: Path = Path("/models/half")) -> None:
    aspire(manager, "half", {version: base / str(version)})


def test_versions_that_were_unloaded_are_told_no_more(loader: FakeLoader) -> None:
    manager, metrics = serve(loader)
    aspire_version(manager, 3)
    aspire_version(manager, 4)
    assert lines(metrics, "tpuserve_version_state") == [
        'tpuserve_version_state{model_name="half",state="AVAILABLE",version="4"} 1'
    ]


def test_version_that_failed_is_told(loader: FakeLoader) -> None:
    manager, metrics = serve(loader)
    loader.failures[4] = LoweringError("no form on a CPU")
    aspire_version(manager, 4)
    assert lines(metrics, "tpuserve_version_state") == [
        'tpuserve_version_state{model_name="half",state="END",version="4"} 1'
    ]


def test_version_on_another_device_than_wanted_is_told(loader: FakeLoader) -> None:
    class Choice:
        fallback = "no TPU here: on the CPU"

    manager, metrics = serve(loader)
    aspire_version(manager, 3)
    gauge = "tpuserve_fallback_to_cpu"
    assert lines(metrics, gauge) == [gauge + '{model_name="half",version="3"} 0']
    model = loader(Path("/models/half/4"))
    model.choice = Choice()  # type: ignore[assignment]
    manager, metrics = Manager(lambda _: model), Metrics()
    WaitingDataPlane(manager, metrics=metrics)
    aspire_version(manager, 4)
    assert lines(metrics, gauge) == [gauge + '{model_name="half",version="4"} 1']


def test_identity_is_told_as_long_as_the_version_is_there(
    loader: FakeLoader, tmp_path: Path
) -> None:
    manager, metrics = serve(loader)
    path = tmp_path / "3" / state_gauges.UUID_FILE
    path.parent.mkdir(parents=True)
    path.write_text("7f-3a\n")
    aspire_version(manager, 3, tmp_path)
    gauge = ":tensorflow:serving:mlmd_map"
    assert lines(metrics, gauge) == [gauge + '{model_name="half",uuid="7f-3a",version="3"} 1']
    path.write_bytes(b"\xff")
    assert lines(metrics, gauge) == []
    path.write_text("7f-3a\n")
    aspire_version(manager, 4, tmp_path)
    assert lines(metrics, gauge) == []
