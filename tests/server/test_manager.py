"""Versions come and go while a model stays available."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from server.manager import Manager
from server.servable import Servable, State, VersionStatus
from tests.server.fakes import FakeLoader
from tpuserve.errors import LoweringError, ModelLoadError, ModelNotFound

X = {"x": np.array([1, 2, 5], np.float32)}


def versions(*numbers: int) -> dict[int, Path]:
    return {number: Path(f"/models/half/{number}") for number in numbers}


def states(manager: Manager) -> dict[int, State]:
    return {each.version: each.state for each in manager.status("half")}


def test_latest_available_version_answers(manager: Manager) -> None:
    manager.aspire("half", versions(3, 4))
    with manager.use("half") as servable:
        assert str(servable) == "half/4"


def test_asked_version_answers(manager: Manager) -> None:
    manager.aspire("half", versions(3, 4))
    with manager.use("half", 3) as servable:
        assert servable.version == 3


def test_unknown_model_is_told_as_tensorflow_serving_does(manager: Manager) -> None:
    with pytest.raises(ModelNotFound) as caught, manager.use("other"):
        pass
    assert str(caught.value) == "Servable not found for request: Latest(other)"


def test_unknown_version_is_told_as_tensorflow_serving_does(manager: Manager) -> None:
    with pytest.raises(ModelNotFound) as caught, manager.use("half", 99):
        pass
    assert str(caught.value) == "Servable not found for request: Specific(half, 99)"


def test_new_version_is_loaded_before_the_old_one_is_closed(
    manager: Manager, loader: FakeLoader
) -> None:
    manager.aspire("half", versions(4))
    assert states(manager) == {4: State.AVAILABLE, 3: State.END}
    assert loader.models[3].is_closed
    assert not loader.models[4].is_closed


def test_old_version_stays_when_the_new_one_fails(manager: Manager, loader: FakeLoader) -> None:
    loader.failures[4] = LoweringError("no form on a CPU")
    manager.aspire("half", versions(4))
    assert states(manager) == {4: State.END, 3: State.AVAILABLE}
    with manager.use("half") as servable:
        assert servable.version == 3


def test_failure_is_kept_in_the_status(manager: Manager, loader: FakeLoader) -> None:
    error = LoweringError("no form on a CPU")
    loader.failures[4] = error
    manager.aspire("half", versions(3, 4))
    assert manager.status("half", 4) == [VersionStatus(4, State.END, error)]


def test_foreign_failure_becomes_one_line(manager: Manager, loader: FakeLoader) -> None:
    loader.failures[4] = OSError("disk\n  gone")
    manager.aspire("half", versions(4))
    (status,) = manager.status("half", 4)
    assert isinstance(status.error, ModelLoadError)
    assert str(status.error) == "half/4 cannot be loaded from /models/half/4: disk gone"


def test_failed_version_is_tried_again_only_after_it_was_left_out(
    manager: Manager, loader: FakeLoader
) -> None:
    loader.failures[4] = LoweringError("no")
    manager.aspire("half", versions(3, 4))
    del loader.failures[4]
    manager.aspire("half", versions(3, 4))
    assert states(manager)[4] is State.END
    manager.aspire("half", versions(3))
    manager.aspire("half", versions(3, 4))
    assert states(manager)[4] is State.AVAILABLE


def test_no_version_wanted_unloads_all(manager: Manager, loader: FakeLoader) -> None:
    manager.aspire("half", {})
    assert states(manager) == {3: State.END}
    assert loader.models[3].is_closed


def left_available(servable: Servable, timeout_seconds: float = 10) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if servable.status.state is not State.AVAILABLE:
            return True
    return False


def test_old_version_is_closed_when_its_last_request_has_finished(
    manager: Manager, loader: FakeLoader
) -> None:
    with manager.use("half", 3) as servable:
        change = threading.Thread(target=manager.aspire, args=("half", versions(4)))
        change.start()
        assert left_available(servable)
        assert not loader.models[3].is_closed
        assert servable.model.run("serving_default", X)["y"].tolist() == [2.5, 3.0, 4.5]
    change.join(10)
    assert loader.models[3].is_closed


def test_unloading_version_takes_no_new_request(manager: Manager) -> None:
    with manager.use("half", 3) as servable:
        change = threading.Thread(target=manager.aspire, args=("half", versions(4)))
        change.start()
        assert left_available(servable)
        with pytest.raises(ModelNotFound), manager.use("half", 3):
            pass
    change.join(10)


def test_close_leaves_a_model_that_is_still_used(manager: Manager, loader: FakeLoader) -> None:
    with manager.use("half"):
        manager.close(timeout_seconds=0)
        assert not loader.models[3].is_closed


def test_close_unloads_every_model(manager: Manager, loader: FakeLoader) -> None:
    manager.close(timeout_seconds=0)
    assert loader.models[3].is_closed
    assert states(manager) == {3: State.END}


def test_status_lists_the_newest_version_first(manager: Manager) -> None:
    manager.aspire("half", versions(3, 5, 4))
    assert [each.version for each in manager.status("half")] == [5, 4, 3]


def test_status_of_an_unknown_model_is_an_error(manager: Manager) -> None:
    with pytest.raises(ModelNotFound, match="^Could not find any versions of model other$"):
        manager.status("other")


def test_status_of_an_unknown_version_is_an_error(manager: Manager) -> None:
    with pytest.raises(ModelNotFound, match="^Could not find version 9 of model half$"):
        manager.status("half", 9)


def test_chosen_metagraph_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    Manager(FakeLoader()).aspire("half", versions(3))
    assert "half/3: {serve} on CPU (a fake)" in caplog.messages
