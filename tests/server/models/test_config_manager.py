"""One bad model never blocks another, at the start and when the configuration changes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from server.config.model_config import (
    ModelConfig,
    ModelServerConfig,
    RequestLogging,
    SpecificPolicy,
)
from server.models.config_manager import ModelConfigManager
from server.models.file_system_source import FileSystemSource
from server.models.manager import Manager
from server.models.servable_loader import Retries
from server.servables.servable import State
from tests.server.fakes import FakeLoader, FakeModel
from tpuserve.errors import (
    BasePathNotFound,
    Code,
    DamagedSavedModel,
    LabelNotAvailable,
    LoweringError,
    ModelNotFound,
    ModelsNotAvailable,
    ReloadSuperseded,
    VersionNotFound,
)


class Models:
    """A ModelConfigManager whose models have base paths in one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        allow_labels: bool = False,
        versions_required: bool = False,
        base_paths_required: bool = False,
        each_path_required: bool = False,
    ) -> None:
        self.directory = directory
        self.loader = FakeLoader()
        self.manager = Manager(self.loader)
        self.source = FileSystemSource(self.manager)
        self.config_manager = ModelConfigManager(
            self.manager,
            self.source,
            allow_labels_for_unavailable=allow_labels,
            versions_required=versions_required,
            base_paths_required=base_paths_required,
            each_path_required=each_path_required,
        )

    def config(self, *names: str, **labels: dict[str, int]) -> ModelServerConfig:
        return ModelServerConfig(
            tuple(
                ModelConfig(name, str(self.directory / name), labels=labels.get(name, {}))
                for name in names
            )
        )

    def add(self, name: str, *versions: int) -> None:
        for version in versions:
            (self.directory / name / str(version)).mkdir(parents=True)

    def states(self, name: str) -> dict[int, State]:
        return {version.version: version.state for version in self.manager.status(name)}


@pytest.fixture
def models(tmp_path: Path) -> Models:
    models = Models(tmp_path)
    models.add("a", 1)
    models.add("b", 2)
    return models


def test_models_are_served_after_the_start(models: Models) -> None:
    models.config_manager.start(models.config("a", "b"))
    assert models.states("a") == {1: State.AVAILABLE}
    assert models.states("b") == {2: State.AVAILABLE}


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "empty"])
def test_start_waits_for_the_first_version_of_a_single_model(
    models: Models, is_there: bool
) -> None:
    if is_there:
        (models.directory / "new").mkdir()
    with ThreadPoolExecutor() as pool:
        started = pool.submit(models.config_manager.start, models.config("new"))
        assert models.manager.wait(lambda: bool(models.manager.unavailable_reason("new")), 30)
        activity = models.config_manager.startup_activity()
        assert activity.startswith("waiting for a version of new: ")
        assert str(models.directory / "new") in activity
        assert not started.done()
        models.add("new", 4)
        models.source.poll_once()
        started.result(30)
    assert models.states("new") == {4: State.AVAILABLE}


def test_start_waits_for_a_configuration_that_can_be_served(models: Models) -> None:
    with ThreadPoolExecutor() as pool:
        started = pool.submit(models.config_manager.start, models.config("gone"))
        assert models.manager.wait(lambda: bool(models.manager.unavailable_reason("gone")), 30)
        models.config_manager.reload(models.config("a"), wait=False)
        started.result(30)
    assert models.states("a") == {1: State.AVAILABLE}


def test_start_without_polls_does_not_wait_for_what_cannot_appear(models: Models) -> None:
    (models.directory / "empty").mkdir()
    for name, text in (
        ("gone", "/gone cannot be read"),
        ("empty", "no version directory in .*/empty"),
    ):
        with pytest.raises((BasePathNotFound, VersionNotFound), match=text):
            models.config_manager.start(models.config(name), is_polled=False)


@pytest.mark.parametrize("names", [["gone"], ["empty"], ["gone", "empty"]], ids=str)
def test_start_ends_if_no_model_has_a_version_and_base_paths_are_required(
    tmp_path: Path, names: list[str]
) -> None:
    models = Models(tmp_path, base_paths_required=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises((BasePathNotFound, VersionNotFound), match="as: tpuserve serve "):
        models.config_manager.start(models.config(*names))


def test_start_tells_that_a_base_path_lacks_the_versions_of_its_policy(tmp_path: Path) -> None:
    models = Models(tmp_path, base_paths_required=True)
    models.add("a", 1)
    (model,) = models.config("a").models
    config = ModelServerConfig((replace(model, policy=SpecificPolicy((2,))),))
    with pytest.raises(VersionNotFound, match="none of the versions 2 in .*/a; found 1"):
        models.config_manager.start(config)


@pytest.mark.parametrize("each_path_required", [False, True])
def test_start_goes_on_without_a_model_unless_each_path_is_required(
    tmp_path: Path, each_path_required: bool
) -> None:
    models = Models(tmp_path, base_paths_required=True, each_path_required=each_path_required)
    models.add("a", 1)
    if each_path_required:
        with pytest.raises(BasePathNotFound, match=f"there is no {tmp_path}/gone"):
            models.config_manager.start(models.config("a", "gone"))
        return
    models.config_manager.start(models.config("a", "gone"))
    assert models.states("a") == {1: State.AVAILABLE}


def test_start_does_not_wait_for_another_file_system(models: Models) -> None:
    config = ModelServerConfig((ModelConfig("far", "ftp://host/far"),))
    with pytest.raises(BasePathNotFound, match="is on ftp://"):
        models.config_manager.start(config)


def test_each_model_needs_a_version_where_versions_are_required(tmp_path: Path) -> None:
    models = Models(tmp_path, versions_required=True)
    models.add("a", 1)
    (tmp_path / "empty").mkdir()
    for apply in (models.config_manager.start, models.config_manager.reload):
        with pytest.raises(VersionNotFound) as caught:
            apply(models.config("a", "empty"))
        assert str(caught.value).startswith(
            f"Unable to find a numerical version path for servable empty at: {tmp_path}/empty "
            f"(--fail_if_no_model_versions_found is set): no version directory in {tmp_path}/empty"
        )
        assert models.manager.names() == []
    models.config_manager.start(models.config("a"))
    assert models.states("a") == {1: State.AVAILABLE}


@pytest.mark.parametrize("flag", [False, True])
def test_need_of_a_version_can_be_set_for_one_model(tmp_path: Path, flag: bool) -> None:
    models = Models(tmp_path, versions_required=flag)
    models.add("a", 1)
    (tmp_path / "empty").mkdir()
    config = models.config("a", "empty")

    def required(value: bool) -> ModelServerConfig:
        first, empty = config.models
        return ModelServerConfig((first, replace(empty, versions_required=value)))

    with pytest.raises(VersionNotFound, match="fail_if_no_model_versions_found of it is set"):
        models.config_manager.start(required(True))
    models.config_manager.start(required(False))
    assert models.states("a") == {1: State.AVAILABLE}
    with pytest.raises(VersionNotFound, match="for servable empty at"):
        models.config_manager.reload(required(True))


def test_model_that_is_alone_and_cannot_be_loaded_is_told_in_the_words_of_the_original(
    models: Models,
) -> None:
    models.loader.failures[1] = LoweringError("no form on a CPU")
    with pytest.raises(ModelsNotAvailable) as caught:
        models.config_manager.start(models.config("a"))
    assert str(caught.value) == (
        "1 servable(s) did not become available: {{{name: a version: 1} due to error: "
        "UNIMPLEMENTED: no form on a CPU}, }"
    )


def test_good_models_start_beside_bad_ones_whose_status_says_why(models: Models) -> None:
    models.loader.failures[2] = DamagedSavedModel("half a file")
    models.config_manager.start(models.config("gone", "b", "a"))
    assert models.states("a") == {1: State.AVAILABLE}
    (status,) = models.manager.status("b")
    assert (status.state, str(status.error)) == (State.END, "half a file")
    with pytest.raises(Exception, match="any versions of model gone: .*/gone cannot be read"):
        models.manager.status("gone")


def test_bad_model_is_served_once_it_is_mended(models: Models) -> None:
    models.config_manager.start(models.config("gone", "a"))
    models.add("gone", 5)
    models.source.poll_once()
    assert models.manager.wait(lambda: models.manager.is_available("gone"), 10)


def test_server_of_nothing_but_bad_models_does_not_start(models: Models) -> None:
    models.loader.failures.update({1: DamagedSavedModel("half"), 2: DamagedSavedModel("a third")})
    with pytest.raises(ModelsNotAvailable, match=r"^2 servable\(s\) did not become available: {{"):
        models.config_manager.start(models.config("a", "b"))


def test_no_model_at_all_is_a_start(models: Models) -> None:
    models.config_manager.start(models.config())
    assert models.manager.names() == []


def test_reload_replaces_the_whole_list(models: Models) -> None:
    models.config_manager.start(models.config("a"))
    models.config_manager.reload(models.config("b"))
    assert models.states("b") == {2: State.AVAILABLE}
    assert models.manager.wait(lambda: models.states("a") == {1: State.END}, 10)


def test_reload_serves_the_good_models_and_tells_the_bad_one(models: Models) -> None:
    models.config_manager.start(models.config("a"))
    models.loader.failures[7] = LoweringError("no form on a CPU")
    models.add("bad", 7)
    with pytest.raises(ModelsNotAvailable) as caught:
        models.config_manager.reload(models.config("a", "bad", "b"))
    assert str(caught.value) == (
        "1 model(s) did not become available: {{{name: bad version: 7} due to error: "
        "UNIMPLEMENTED: no form on a CPU}, }"
    )
    assert models.states("b") == {2: State.AVAILABLE}


def test_reload_that_waits_for_a_model_keeps_no_other_reload_waiting(tmp_path: Path) -> None:
    models = Models(tmp_path)
    models.add("a", 1)
    models.add("b", 2)
    models.manager = Manager(models.loader, retries=Retries(count=1, interval_seconds=600))
    models.source = FileSystemSource(models.manager)
    models.config_manager = ModelConfigManager(models.manager, models.source)
    models.loader.failures[1] = OSError("disk busy")
    models.config_manager.reload(models.config("a"), wait=False)
    models.config_manager.reload(models.config("a", "b"))
    assert models.states("b") == {2: State.AVAILABLE}
    assert models.manager.wait(lambda: models.states("a") == {1: State.LOADING}, 10)
    models.manager.close(0)


def test_reload_whose_model_another_one_leaves_out_meanwhile_says_so(tmp_path: Path) -> None:
    models = Models(tmp_path)
    models.add("a", 1)
    begun, gate = threading.Event(), threading.Event()

    def load(directory: Path) -> FakeModel:
        begun.set()
        assert gate.wait(10)
        return models.loader(directory)

    manager = Manager(load)
    config_manager = ModelConfigManager(manager, FileSystemSource(manager))
    with ThreadPoolExecutor() as threads:
        first = threads.submit(config_manager.reload, models.config("a"))
        assert begun.wait(10)
        config_manager.reload(models.config(), wait=False)
        gate.set()
        with pytest.raises(ReloadSuperseded, match="before a became available. Send it again"):
            first.result(10)
    assert ReloadSuperseded.code is Code.ABORTED


def test_load_keeps_a_model_that_another_client_loads_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Models(tmp_path, versions_required=True)
    models.add("a", 1)
    models.add("b", 2)
    models.config_manager.start(models.config("a", "b"))
    models.config_manager.unload_model("a")
    models.config_manager.unload_model("b")
    begun, gate = threading.Event(), threading.Event()
    find_versions = models.source.find_versions

    def find_slowly(model: ModelConfig) -> dict[int, Path]:
        if model.name == "a":
            begun.set()
            assert gate.wait(10)
        return find_versions(model)

    monkeypatch.setattr(models.source, "find_versions", find_slowly)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(models.config_manager.load_model, "a")
        assert begun.wait(10)
        models.config_manager.load_model("b")
        gate.set()
        first.result(10)
    assert sorted(models.config_manager.config.names()) == ["a", "b"]
    assert models.manager.is_available("a")
    assert models.manager.is_available("b")


def test_model_that_another_client_unloads_at_the_end_of_its_load_can_be_loaded_again(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.config_manager.start(models.config("a"))
    models.config_manager.unload_model("a")
    matches_aspired = models.manager.matches_aspired

    def match_and_unload(name: str) -> bool:
        result = matches_aspired(name)
        models.config_manager.unload_model(name)
        return result

    with monkeypatch.context() as context:
        context.setattr(models.manager, "matches_aspired", match_and_unload)
        models.config_manager.load_model("a")
    models.config_manager.load_model("a")
    assert models.manager.is_available("a")


def test_served_model_that_moves_to_no_place_fails_and_is_served_from_the_old(
    models: Models,
) -> None:
    models.config_manager.start(models.config("a"))
    moved = ModelServerConfig((ModelConfig("a", str(models.directory / "gone")),))
    for _ in range(2):
        with pytest.raises(ModelsNotAvailable) as caught:
            models.config_manager.reload(moved)
        text = str(caught.value)
        assert text.startswith(
            "1 model(s) did not become available: {{{name: a} due to error: NOT_FOUND: model base "
        )
        assert models.states("a") == {1: State.AVAILABLE}
    models.add("gone", 3)
    models.config_manager.reload(moved)
    assert models.states("a")[3] is State.AVAILABLE


def test_path_on_another_file_system_is_told_and_keeps_no_other_waiting(models: Models) -> None:
    far = ModelConfig("far", "ftp://host/models")
    models.config_manager.start(ModelServerConfig((far, *models.config("a").models)))
    assert models.states("a") == {1: State.AVAILABLE}
    assert (
        "ftp://host/models is on ftp://, and the server reads this machine's own files and gs, s3"
        in (str(models.manager.unavailable_reason("far")))
    )


def test_refused_configuration_changes_nothing(models: Models) -> None:
    def refuse(config: ModelServerConfig) -> None:
        raise LoweringError("no")

    config_manager = ModelConfigManager(models.manager, models.source, on_config=refuse)
    with pytest.raises(LoweringError):
        config_manager.start(models.config("a"))
    assert models.manager.names() == []


LABEL_TEXT = (
    "^Request to assign label to version {} of model a, which is not currently available for "
    "inference$"
)


def test_label_at_the_start_needs_leave(models: Models) -> None:
    text = (
        LABEL_TEXT.format(1).removesuffix("$") + ".*--allow_version_labels_for_unavailable_models"
    )
    with pytest.raises(LabelNotAvailable, match=text):
        models.config_manager.start(models.config("a", a={"stable": 1}))


def test_label_at_the_start_is_taken_with_leave(tmp_path: Path) -> None:
    models = Models(tmp_path, allow_labels=True)
    models.add("a", 1)
    models.config_manager.start(models.config("a", a={"stable": 1}))
    assert models.manager.version_labels("a") == {"stable": 1}


def test_available_version_may_be_labelled(models: Models) -> None:
    models.config_manager.start(models.config("a"))
    models.config_manager.reload(models.config("a", a={"stable": 1}))
    assert models.manager.version_labels("a") == {"stable": 1}
    models.config_manager.reload(models.config("a"))
    assert models.manager.version_labels("a") == {}


def test_version_that_comes_with_the_reload_may_not_be_labelled(models: Models) -> None:
    models.config_manager.start(models.config("b"))
    with pytest.raises(LabelNotAvailable, match=LABEL_TEXT.format(1)):
        models.config_manager.reload(models.config("a", "b", a={"stable": 1}))
    assert models.manager.names() == ["b"]


def test_refused_label_leaves_the_configuration_and_the_request_log_as_they_were(
    models: Models,
) -> None:
    configs: list[ModelServerConfig] = []
    config_manager = ModelConfigManager(models.manager, models.source, on_config=configs.append)
    config_manager.start(models.config("a"))
    with pytest.raises(LabelNotAvailable):
        config_manager.reload(models.config("a", "b", b={"stable": 2}))
    assert config_manager.config == models.config("a")
    assert configs == [models.config("a")]
    # The refused configuration had no effect: the same one without the label adds the model and
    # waits for its load.
    config_manager.reload(models.config("a", "b"))
    assert models.states("b") == {2: State.AVAILABLE}


def test_label_never_moves_to_an_unavailable_version(tmp_path: Path) -> None:
    models = Models(tmp_path, allow_labels=True)
    models.add("a", 1)
    models.config_manager.start(models.config("a", a={"stable": 1}))
    with pytest.raises(LabelNotAvailable, match=LABEL_TEXT.format(9)):
        models.config_manager.reload(models.config("a", a={"stable": 9}))
    assert models.manager.version_labels("a") == {"stable": 1}


def test_client_can_load_an_unloaded_model_again_with_its_request_log(models: Models) -> None:
    log = RequestLogging("file", "/logs/a", 1.0)
    (a, b) = models.config("a", "b").models
    models.config_manager.start(ModelServerConfig((replace(a, logging=log), b)))
    models.config_manager.unload_model("a")
    models.config_manager.reload(models.config("a", "b"), keep_logging=True)
    assert [model.logging for model in models.config_manager.config.models] == [log, None]


def test_unloaded_model_that_a_reload_leaves_out_cannot_be_loaded(models: Models) -> None:
    models.config_manager.start(models.config("a", "b"))
    models.config_manager.unload_model("a")
    models.config_manager.reload(models.config("b"))
    with pytest.raises(ModelNotFound, match="no model is named 'a' .* which has: b"):
        models.config_manager.load_model("a")
    assert models.config_manager.config == models.config("b")


def test_unloaded_model_can_be_loaded_after_a_refused_reload(models: Models) -> None:
    models.config_manager.start(models.config("a", "b"))
    models.config_manager.unload_model("a")
    with pytest.raises(LabelNotAvailable):
        models.config_manager.reload(models.config("b", b={"stable": 9}))
    models.config_manager.load_model("a")
    assert models.manager.is_available("a")


def test_model_that_has_failed_to_load_is_loaded_on_request(models: Models) -> None:
    models.loader.failures[2] = LoweringError("no memory")
    models.config_manager.start(models.config("a", "b"))
    models.loader.failures[2] = LoweringError("no memory yet")
    with pytest.raises(ModelsNotAvailable, match="UNIMPLEMENTED: no memory yet}, }$"):
        models.config_manager.load_model("b")
    del models.loader.failures[2]
    models.config_manager.load_model("b")
    assert models.states("b") == {2: State.AVAILABLE}


def test_load_on_request_is_tried_once(models: Models) -> None:
    tries = []

    def load(directory: Path) -> FakeModel:
        tries.append(directory.name)
        raise LoweringError("no memory")

    manager = Manager(load)
    config_manager = ModelConfigManager(manager, FileSystemSource(manager))
    config_manager.reload(models.config("a"), wait=False)
    assert manager.wait(lambda: manager.is_converged("a"), 10)
    config_manager.unload_model("a")
    for count in (2, 3):
        with pytest.raises(ModelsNotAvailable, match="no memory"):
            config_manager.load_model("a")
        assert tries == ["1"] * count


def test_clients_that_load_a_failed_model_at_the_same_time_wait_for_one_load(
    models: Models,
) -> None:
    tries, begun, gate = [], threading.Event(), threading.Event()

    def load(directory: Path) -> FakeModel:
        tries.append(directory.name)
        if len(tries) == 1:
            raise LoweringError("no memory")
        begun.set()
        assert gate.wait(10)
        return FakeModel()

    manager = Manager(load)
    config_manager = ModelConfigManager(manager, FileSystemSource(manager))
    with pytest.raises(ModelsNotAvailable):
        config_manager.reload(models.config("a"))
    with ThreadPoolExecutor() as threads:
        loads = [threads.submit(config_manager.load_model, "a") for _ in range(2)]
        assert begun.wait(10)
        gate.set()
        for result in loads:
            result.result(10)
    assert tries == ["1", "1"]


def test_version_that_waits_for_its_next_try_is_loaded_on_request(models: Models) -> None:
    manager = Manager(models.loader, retries=Retries(count=1, interval_seconds=3600))
    config_manager = ModelConfigManager(manager, FileSystemSource(manager))
    models.loader.failures[1] = OSError("disk busy")
    config_manager.reload(models.config("a"), wait=False)
    assert manager.wait(lambda: manager.status("a")[0].error is not None, 10)
    del models.loader.failures[1]
    config_manager.load_model("a")
    assert manager.is_available("a")
    assert manager.close(0)
