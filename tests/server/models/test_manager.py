"""Versions come and go while a model stays available."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from server.models.manager import Manager
from server.models.servable_loader import Retries
from server.servables.direct_runner import DirectRunner
from server.servables.servable import Model, Servable, State, VersionStatus
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader, FakeModel
from tpuserve.errors import CodedError, InvalidInput, LoweringError, ModelNotFound

X = {"x": np.array([1, 2, 5], np.float32)}


def versions(*numbers: int) -> dict[int, Path]:
    return {number: Path(f"/models/half/{number}") for number in numbers}


def states(manager: Manager) -> dict[int, State]:
    return {version.version: version.state for version in manager.status("half")}


def test_latest_available_version_answers(manager: Manager) -> None:
    aspire(manager, "half", versions(3, 4))
    with manager.get_servable_handle("half") as servable:
        assert str(servable) == "half/4"


def test_asked_version_answers(manager: Manager) -> None:
    aspire(manager, "half", versions(3, 4))
    with manager.get_servable_handle("half", 3) as servable:
        assert servable.version == 3


def test_unknown_model_is_told_as_tensorflow_serving_does(manager: Manager) -> None:
    with pytest.raises(ModelNotFound) as caught, manager.get_servable_handle("other"):
        pass
    assert str(caught.value) == "Servable not found for request: Latest(other)"


def test_unknown_version_is_told_as_tensorflow_serving_does(manager: Manager) -> None:
    with pytest.raises(ModelNotFound) as caught, manager.get_servable_handle("half", 99):
        pass
    assert str(caught.value) == "Servable not found for request: Specific(half, 99)"


def test_new_version_is_loaded_before_the_old_one_is_closed(
    manager: Manager, loader: FakeLoader
) -> None:
    aspire(manager, "half", versions(4))
    assert states(manager) == {4: State.AVAILABLE, 3: State.END}
    assert loader.models[3].is_closed
    assert not loader.models[4].is_closed


def test_old_version_is_closed_when_all_is_as_wanted(loader: FakeLoader) -> None:
    ended = threading.Event()

    class Hesitant(Manager):
        def _note_change(self, servable: Servable, state: State) -> None:
            super()._note_change(servable, state)
            if (servable.version, state) == (4, State.AVAILABLE):
                ended.wait(0.2)

    manager = Hesitant(loader)
    aspire(manager, "half", versions(3))
    aspire(manager, "half", versions(4))
    ended.set()
    assert states(manager) == {4: State.AVAILABLE, 3: State.END}


def test_old_version_stays_when_the_new_one_fails(manager: Manager, loader: FakeLoader) -> None:
    loader.failures[4] = LoweringError("no form on a CPU")
    aspire(manager, "half", versions(4))
    assert states(manager) == {4: State.END, 3: State.AVAILABLE}
    with manager.get_servable_handle("half") as servable:
        assert servable.version == 3


def test_failure_is_kept_in_the_status(manager: Manager, loader: FakeLoader) -> None:
    error = LoweringError("no form on a CPU")
    loader.failures[4] = error
    aspire(manager, "half", versions(3, 4))
    assert manager.status("half", 4) == [VersionStatus(4, State.END, error)]


def test_foreign_failure_becomes_one_line(manager: Manager, loader: FakeLoader) -> None:
    loader.failures[4] = OSError("disk\n  gone")
    aspire(manager, "half", versions(4))
    (status,) = manager.status("half", 4)
    assert isinstance(status.error, CodedError)
    assert str(status.error) == "half/4 cannot be loaded from /models/half/4: disk gone"


def test_failed_version_is_tried_again_only_after_it_was_left_out(
    manager: Manager, loader: FakeLoader
) -> None:
    loader.failures[4] = LoweringError("no")
    aspire(manager, "half", versions(3, 4))
    del loader.failures[4]
    aspire(manager, "half", versions(3, 4))
    assert states(manager)[4] is State.END
    aspire(manager, "half", versions(3))
    aspire(manager, "half", versions(3, 4))
    assert states(manager)[4] is State.AVAILABLE


def test_no_version_wanted_unloads_all(manager: Manager, loader: FakeLoader) -> None:
    aspire(manager, "half", {})
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
    with manager.get_servable_handle("half", 3) as servable:
        change = threading.Thread(target=aspire, args=(manager, "half", versions(4)))
        change.start()
        assert left_available(servable)
        assert not loader.models[3].is_closed
        assert servable.model.run("serving_default", X)["y"].tolist() == [2.5, 3.0, 4.5]
    change.join(10)
    assert loader.models[3].is_closed


def test_unloading_version_takes_no_new_request(manager: Manager) -> None:
    with manager.get_servable_handle("half", 3) as servable:
        change = threading.Thread(target=aspire, args=(manager, "half", versions(4)))
        change.start()
        assert left_available(servable)
        with pytest.raises(ModelNotFound), manager.get_servable_handle("half", 3):
            pass
    change.join(10)


def test_close_leaves_a_model_that_is_still_used(manager: Manager, loader: FakeLoader) -> None:
    with manager.get_servable_handle("half"):
        manager.close(timeout_seconds=0)
        assert not loader.models[3].is_closed


def test_close_unloads_every_model(manager: Manager, loader: FakeLoader) -> None:
    manager.close(timeout_seconds=0)
    assert loader.models[3].is_closed
    assert states(manager) == {3: State.END}


def test_status_lists_the_newest_version_first(manager: Manager) -> None:
    aspire(manager, "half", versions(3, 5, 4))
    assert [version.version for version in manager.status("half")] == [5, 4, 3]


def test_status_of_an_unknown_model_is_an_error(manager: Manager) -> None:
    with pytest.raises(ModelNotFound, match="^Could not find any versions of model other$"):
        manager.status("other")


def test_status_of_an_unknown_version_is_an_error(manager: Manager) -> None:
    with pytest.raises(ModelNotFound, match="^Could not find version 9 of model half$"):
        manager.status("half", 9)


def test_chosen_metagraph_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    aspire(Manager(FakeLoader()), "half", versions(3))
    assert "half/3: {serve} on CPU (a fake)" in caplog.messages


def test_labelled_version_answers(manager: Manager) -> None:
    aspire(manager, "half", versions(3, 4))
    manager.set_version_labels("half", {"stable": 3})
    with manager.get_servable_handle("half", label="stable") as servable:
        assert servable.version == 3


def test_unknown_label_is_told_as_tensorflow_serving_does(manager: Manager) -> None:
    manager.set_version_labels("half", {"stable": 3})
    with (
        pytest.raises(InvalidInput) as caught,
        manager.get_servable_handle("half", label="canary"),
    ):
        pass
    assert str(caught.value) == "Unrecognized servable version label: canary"


def test_label_of_a_version_that_is_gone_is_not_found(manager: Manager) -> None:
    manager.set_version_labels("half", {"canary": 9})
    with pytest.raises(ModelNotFound, match=r"Specific\(half, 9\)"):
        manager.get_servable_handle("half", label="canary").__enter__()


def test_version_that_came_back_is_kept_and_not_loaded_twice(
    manager: Manager, loader: FakeLoader
) -> None:
    loader.failures[4] = LoweringError("no")
    before = loader.models[3]
    aspire(manager, "half", versions(4))
    aspire(manager, "half", versions(3))
    assert loader.models[3] is before
    assert states(manager) == {4: State.END, 3: State.AVAILABLE}


def test_version_at_another_place_is_loaded_before_the_one_at_the_old_is_closed(
    manager: Manager, loader: FakeLoader
) -> None:
    before = loader.models[3]
    aspire(manager, "half", {3: Path("/elsewhere/half/3")})
    assert before.is_closed
    assert not loader.models[3].is_closed
    with manager.get_servable_handle("half") as servable:
        assert servable.model is loader.models[3]


def test_failure_that_may_pass_is_tried_again() -> None:
    loader = FakeLoader()
    loader.failures[3] = OSError("disk busy")
    manager = Manager(loader, retries=Retries(count=1, interval_seconds=0.05))
    manager.set_aspired_versions("half", versions(3))
    assert manager.wait(lambda: manager.status("half")[0].error is not None, 10)
    assert states(manager) == {3: State.LOADING}
    del loader.failures[3]
    assert manager.wait(lambda: manager.is_converged("half"), 10)
    assert manager.status("half") == [VersionStatus(3, State.AVAILABLE)]


def test_failure_ends_after_the_last_try() -> None:
    tries = []

    def load(directory: Path) -> FakeModel:
        tries.append(directory)
        raise OSError("disk busy")

    manager = Manager(load, retries=Retries(count=2, interval_seconds=0))
    aspire(manager, "half", versions(3))
    assert len(tries) == 3
    assert states(manager) == {3: State.END}


def test_failure_that_stays_is_not_tried_again() -> None:
    loader = FakeLoader()
    loader.failures[3] = LoweringError("no form on a CPU")
    manager = Manager(loader, retries=Retries(count=5, interval_seconds=600))
    aspire(manager, "half", versions(3))
    assert states(manager) == {3: State.END}


def test_failed_version_is_tried_again_once_its_files_are_at_rest(tmp_path: Path) -> None:
    loader = FakeLoader()
    loader.failures[3] = LoweringError("no saved_model.pb")
    directory = tmp_path / "3"
    directory.mkdir()
    manager = Manager(loader)
    aspire(manager, "half", {3: directory})
    del loader.failures[3]
    (directory / "saved_model.pb").write_text("half of it")
    aspire(manager, "half", {3: directory})
    assert states(manager) == {3: State.END}
    aspire(manager, "half", {3: directory})
    assert states(manager) == {3: State.AVAILABLE}


def test_version_that_waits_for_its_next_try_is_tried_once_its_files_are_mended(
    tmp_path: Path,
) -> None:
    loader = FakeLoader()
    loader.failures[3] = OSError("half a file")
    manager = Manager(loader, retries=Retries(count=1, interval_seconds=3600))
    path = tmp_path / "3"
    path.mkdir()
    manager.set_aspired_versions("half", {3: path})
    assert manager.wait(lambda: manager.status("half")[0].error is not None, 10)
    del loader.failures[3]
    (path / "saved_model.pb").write_text("whole")
    # The first poll sees the changed files, the second sees the same files, so the copy is
    # complete.
    while not manager.is_available("half"):
        manager.set_aspired_versions("half", {3: path})
        manager.wait(lambda: manager.is_available("half"), 0.05)
    assert [version.version for version in manager.status("half")] == [3]
    assert manager.close(0)


def test_failed_version_is_tried_again_on_request_unless_another_is_available(
    manager: Manager, loader: FakeLoader
) -> None:
    loader.failures[4] = LoweringError("no")
    aspire(manager, "half", versions(3, 4))
    del loader.failures[4]
    manager.retry_failed_loads("half")
    assert states(manager) == {4: State.END, 3: State.AVAILABLE}
    loader.failures[4] = LoweringError("no")
    aspire(manager, "half", versions(4))
    del loader.failures[4]
    manager.retry_failed_loads("half")
    assert manager.wait(lambda: manager.is_available("half", 4), 10)


def test_model_that_loads_for_ever_keeps_no_other_waiting() -> None:
    gate = threading.Event()

    def load(directory: Path) -> FakeModel:
        if directory.parent.name == "slow":
            assert gate.wait(10)
        return FakeModel()

    manager = Manager(load)
    manager.set_aspired_versions("slow", {1: Path("/models/slow/1")})
    aspire(manager, "half", versions(3))
    assert states(manager) == {3: State.AVAILABLE}
    gate.set()
    assert manager.wait(lambda: manager.is_available("slow"), 10)


def test_version_that_is_no_longer_wanted_is_not_loaded() -> None:
    gate, loaded = threading.Event(), []

    def load(directory: Path) -> FakeModel:
        loaded.append(directory.name)
        assert gate.wait(10)
        return FakeModel()

    manager = Manager(load, load_threads=1)
    manager.set_aspired_versions("half", versions(3))
    manager.set_aspired_versions("half", versions(3, 4))
    manager.set_aspired_versions("half", versions(3))
    gate.set()
    assert manager.wait(lambda: manager.is_converged("half"), 10)
    assert loaded == ["3"]
    assert states(manager) == {3: State.AVAILABLE, 4: State.END}


def test_version_that_waits_for_its_next_try_keeps_nobody_waiting_once_it_is_not_wanted() -> None:
    loader = FakeLoader()
    loader.failures[3] = OSError("disk busy")
    manager = Manager(loader, retries=Retries(count=5, interval_seconds=3600))
    manager.set_aspired_versions("half", versions(3))
    assert manager.wait(lambda: manager.status("half")[0].error is not None, 10)
    manager.set_aspired_versions("half", versions(4))
    assert manager.wait(lambda: manager.is_converged("half"), 10)
    assert states(manager) == {4: State.AVAILABLE, 3: State.END}
    del loader.failures[3]
    aspire(manager, "half", versions(3))
    assert states(manager) == {4: State.END, 3: State.AVAILABLE}


def test_version_that_is_aspired_again_as_it_is_given_up_is_loaded() -> None:
    gate, given_up, is_aspired_again = threading.Event(), threading.Event(), threading.Event()

    class Hesitant(Manager):
        def _is_aspired(self, servable: Servable) -> bool:
            is_wanted = super()._is_aspired(servable)
            if not is_wanted:
                given_up.set()
                is_aspired_again.wait(0.2)
            return is_wanted

    def load(directory: Path) -> FakeModel:
        assert gate.wait(10)
        return FakeModel()

    manager = Hesitant(load, load_threads=1)
    manager.set_aspired_versions("slow", {1: Path("/models/slow/1")})
    manager.set_aspired_versions("half", versions(3))
    manager.set_aspired_versions("half", {})
    gate.set()
    assert given_up.wait(10)
    manager.set_aspired_versions("half", versions(3))
    is_aspired_again.set()
    assert manager.wait(lambda: manager.is_converged("half"), 10)
    assert states(manager) == {3: State.AVAILABLE}


def test_warm_up_comes_before_a_version_is_available() -> None:
    load_states = []
    manager = Manager(
        FakeLoader(),
        warm_up=lambda model, directory: load_states.append(manager.status("half")[0].state),
    )
    aspire(manager, "half", versions(3))
    assert load_states == [State.LOADING]
    assert states(manager) == {3: State.AVAILABLE}


def test_failed_warm_up_closes_the_model() -> None:
    loader = FakeLoader()

    def warm_up(model: Model, directory: Path) -> None:
        raise LoweringError("cold")

    manager = Manager(loader, warm_up=warm_up)
    aspire(manager, "half", versions(3))
    assert states(manager) == {3: State.END}
    assert loader.models[3].is_closed


def test_requests_run_directly_unless_a_runner_is_made(manager: Manager) -> None:
    with manager.get_servable_handle("half") as servable:
        assert isinstance(servable.runner, DirectRunner)
    runner = DirectRunner(FakeModel())
    other = Manager(FakeLoader(), make_runner=lambda model, directory, name: runner)
    aspire(other, "half", versions(3))
    with other.get_servable_handle("half") as servable:
        assert servable.runner is runner


def test_fallback_is_noted_in_the_status() -> None:
    class Choice:
        fallback = "serving {serve} on the CPU instead"

    model = FakeModel()
    model.choice = Choice()  # type: ignore[assignment]
    manager = Manager(lambda directory: model)
    aspire(manager, "half", versions(3))
    (status,) = manager.status("half")
    assert status == VersionStatus(3, State.AVAILABLE, note="serving {serve} on the CPU instead")


def test_reason_why_nothing_is_known_is_told(manager: Manager) -> None:
    manager.set_unavailable_reason("other", LoweringError("no such path"))
    assert manager.names() == ["half", "other"]
    with pytest.raises(ModelNotFound, match="any versions of model other: no such path$"):
        manager.status("other")


def test_every_state_is_told_in_its_order() -> None:
    history: list[State] = []
    manager = Manager(FakeLoader(), on_change=lambda servable, state: history.append(state))
    for new_versions, changes in ((versions(3), 3), ({}, 5)):
        aspire(manager, "half", new_versions)
        # Wait, because `on_change` is called shortly after a state has begun.
        assert manager.wait(lambda changes=changes: len(history) == changes, 10)  # type: ignore[misc]
    assert history == [State.START, State.LOADING, State.AVAILABLE, State.UNLOADING, State.END]


def test_swap_under_load_fails_no_request(loader: FakeLoader) -> None:
    manager = Manager(loader)
    aspire(manager, "half", versions(1))
    stop, failures, answered = threading.Event(), [], threading.Semaphore(0)

    def ask() -> None:
        while not stop.is_set():
            try:
                with manager.get_servable_handle("half") as servable:
                    assert servable.model.run("serving_default", X)["y"][0] == 2.5
            except Exception as error:
                failures.append(error)
            answered.release()

    clients = [threading.Thread(target=ask) for _ in range(3)]
    for client in clients:
        client.start()
    for swap in range(20):
        aspire(manager, "half", versions(2 if swap % 2 == 0 else 1))
        for _ in range(5):
            assert answered.acquire(timeout=10)
    stop.set()
    for client in clients:
        client.join(10)
    assert failures == []


def test_swap_in_the_middle_of_a_look_fails_no_request(manager: Manager) -> None:
    class SwappingServable(Servable):
        def try_acquire(self) -> bool:
            if not swapped:
                swapped.append(True)
                aspire(manager, "half", versions(4))
            return super().try_acquire()

    swapped: list[bool] = []
    (servable,) = manager._servables["half"]
    servable.__class__ = SwappingServable
    with manager.get_servable_handle("half") as handle:
        assert handle.version == 4
