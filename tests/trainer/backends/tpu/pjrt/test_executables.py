"""Training on PJRT devices keeps compiled executables on disk, and reuses them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer import programs
from tests.trainer.backends.tpu.pjrt.test_training import train
from tpuserve.files.disk_cache import EXECUTABLES_VARIABLE
from tpuserve.pjrt.step_loop import build_step_loop

pytest.importorskip("jax")

pytestmark = pytest.mark.slow


@pytest.fixture
def loop_capacities(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the capacity, in steps, of each loop that XLA compiles."""
    capacities: list[int] = []

    def record(exported: Any, layout: Any, mesh: Any, capacity: int, **options: Any) -> Any:
        capacities.append(capacity)
        return build_step_loop(exported, layout, mesh, capacity, **options)

    monkeypatch.setattr("tpuserve.pjrt.step_program.build_step_loop", record)
    return capacities


@pytest.mark.numeric
def test_a_second_start_compiles_nothing_and_trains_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop_capacities: list[int]
) -> None:
    monkeypatch.setenv(EXECUTABLES_VARIABLE, str(tmp_path / "executables"))
    # Capacities are powers of 2: 8 for a loop of 5 steps. The last loop, of 2 steps, takes batches
    # that were read ahead for a loop of 5.
    train(tmp_path / "first", "pjrt", 7, rate=0.5)
    assert loop_capacities == [8]
    train(tmp_path / "second", "pjrt", 7, rate=0.5)
    assert loop_capacities == [8]
    for name in ("hidden", "out", "out/Momentum"):
        first, second = (
            programs.variable(tmp_path / directory, name) for directory in ("first", "second")
        )
        np.testing.assert_array_equal(first, second)


def test_another_model_is_not_mistaken_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop_capacities: list[int]
) -> None:
    monkeypatch.setenv(EXECUTABLES_VARIABLE, str(tmp_path / "executables"))
    train(tmp_path / "first", "pjrt", 2)
    train(tmp_path / "second", "pjrt", 2, rate=0.5)
    assert loop_capacities == [2, 2]


def test_a_damaged_file_is_compiled_again_with_one_line_in_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop_capacities: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(EXECUTABLES_VARIABLE, str(tmp_path / "executables"))
    train(tmp_path / "first", "pjrt", 2)
    (path,) = (tmp_path / "executables").glob("*.executable")
    path.write_bytes(path.read_bytes()[:-10])
    train(tmp_path / "second", "pjrt", 2)
    assert loop_capacities == [2, 2]
    assert [message for message in caplog.messages if "compiled again" in message] == [
        f"{path} is compiled again: the file is damaged"
    ]
    train(tmp_path / "third", "pjrt", 2)
    assert loop_capacities == [2, 2]


def test_off_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop_capacities: list[int]
) -> None:
    monkeypatch.setenv(EXECUTABLES_VARIABLE, "off")
    monkeypatch.setenv("TPUSERVE_CACHE_DIR", str(tmp_path / "cache"))
    train(tmp_path / "first", "pjrt", 2)
    assert loop_capacities == [2]
    assert not (tmp_path / "cache").exists()
