"""Versions that appear on disk are loaded, and versions that disappear are unloaded."""

import errno
import os
import threading
from pathlib import Path

import pytest

from server.config.model_config import ModelConfig
from server.models.file_system_source import FileSystemSource, PeriodicFunction
from server.models.manager import Manager
from server.servables.servable import State
from tests.server.fakes import FakeLoader


@pytest.fixture
def manager() -> Manager:
    return Manager(FakeLoader())


@pytest.fixture
def source(manager: Manager, tmp_path: Path) -> FileSystemSource:
    (tmp_path / "half" / "3").mkdir(parents=True)
    source = FileSystemSource(manager)
    source.set_models(
        (
            ModelConfig("gone", str(tmp_path / "gone")),
            ModelConfig("half", str(tmp_path / "half")),
        )
    )
    return source


def wait_for_states(manager: Manager) -> dict[int, State]:
    assert manager.wait(lambda: manager.is_converged("half"), 10)
    return {version.version: version.state for version in manager.status("half")}


def test_missing_base_path_keeps_no_other_model_from_being_found(
    manager: Manager, source: FileSystemSource
) -> None:
    assert wait_for_states(manager) == {3: State.AVAILABLE}


def test_new_version_is_found(manager: Manager, source: FileSystemSource, tmp_path: Path) -> None:
    (tmp_path / "half" / "4").mkdir()
    source.poll_once()
    assert wait_for_states(manager)[4] is State.AVAILABLE


def test_model_whose_versions_are_gone_is_unloaded(
    manager: Manager, source: FileSystemSource, tmp_path: Path
) -> None:
    assert wait_for_states(manager) == {3: State.AVAILABLE}
    (tmp_path / "half" / "3").rmdir()
    source.poll_once()
    assert manager.wait(lambda: not manager.is_available("half"), 10)


def test_model_whose_base_path_is_gone_keeps_its_versions(
    manager: Manager, source: FileSystemSource, tmp_path: Path
) -> None:
    assert wait_for_states(manager) == {3: State.AVAILABLE}
    (tmp_path / "half").rename(tmp_path / "moved")
    source.poll_once()
    assert wait_for_states(manager) == {3: State.AVAILABLE}


def test_model_whose_files_cannot_be_examined_keeps_its_versions_and_others_are_polled(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base_path = tmp_path / "half" / "3"
    (tmp_path / "other" / "4").mkdir(parents=True)
    base_path.mkdir(parents=True)
    (base_path / "saved_model.pb").touch()
    source = FileSystemSource(manager)
    other = ModelConfig("other", str(tmp_path / "other"))
    source.set_models((ModelConfig("half", str(base_path)), other))
    assert wait_for_states(manager) == {3: State.AVAILABLE}

    def fail(path: Path) -> bool:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    monkeypatch.setattr(Path, "is_file", fail)
    (tmp_path / "other" / "5").mkdir()
    source.poll_once()
    assert manager.wait(lambda: manager.is_available("other", 5), 10)
    assert wait_for_states(manager) == {3: State.AVAILABLE}
    assert "cannot be listed: OSError: " in str(manager.unavailable_reason("half"))


def test_version_whose_directory_cannot_be_examined_stays_loaded(
    manager: Manager, source: FileSystemSource, tmp_path: Path
) -> None:
    assert wait_for_states(manager) == {3: State.AVAILABLE}
    # A loop of symbolic links stands for a file system that fails for some time.
    (tmp_path / "half" / "3").rmdir()
    (tmp_path / "half" / "3").symlink_to("3")
    source.poll_once()
    assert wait_for_states(manager) == {3: State.AVAILABLE}
    (tmp_path / "half" / "4").mkdir()
    source.poll_once()
    assert wait_for_states(manager)[4] is State.AVAILABLE


def test_missing_base_path_is_said_once(
    manager: Manager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = FileSystemSource(manager)
    source.set_models((ModelConfig("gone", str(tmp_path / "gone")),))
    source.poll_once()
    (text,) = [message for message in caplog.messages if "gone" in message]
    assert text.startswith(f"Could not find base path {tmp_path}/gone for servable gone with error")


def test_poller_goes_on_after_a_failure() -> None:
    times = threading.Semaphore(0)

    def fail() -> None:
        times.release()
        raise RuntimeError("once more")

    poller = PeriodicFunction("test", fail, 0.001)
    poller.start()
    assert times.acquire(timeout=10)
    assert times.acquire(timeout=10)
    poller.stop()


@pytest.mark.parametrize("interval_seconds", [0, -1])
def test_poller_without_an_interval_never_runs(interval_seconds: float) -> None:
    poller = PeriodicFunction("idle", pytest.fail, interval_seconds)
    poller.start()
    assert "idle" not in {thread.name for thread in threading.enumerate()}
