"""A version is loaded as the settings say, or refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from server.config.settings import Settings
from server.models.manager import Manager
from server.servables.saved_model_loader import SavedModelLoader
from server.servables.servable import State
from tests import models
from tests.server import contexts
from tests.server.aspired_versions import aspire
from tests.tpuserve.saved_model.test_signing import write_keys
from tpuserve import tags
from tpuserve.devices import EMULATION_VARIABLE
from tpuserve.errors import Code, CodedError, MetagraphNotFound, UnsafeModel
from tpuserve.saved_model import signing


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return models.export(models.half_plus_two, tmp_path / "half", tags.SERVE)


def load_model(directory: Path, **flags: Any) -> Any:
    return SavedModelLoader(Settings(directory.parent, **flags))(directory)


X = {"x": np.array([[2]], np.float32)}


def test_model_is_loaded(directory: Path) -> None:
    assert load_model(directory).run("serving_default", X)["y"] == 3


def test_model_is_loaded_with_the_help_of_others_once_there_are_requests(directory: Path) -> None:
    load = SavedModelLoader(Settings(directory.parent))
    load.mark_serving()
    assert load(directory).run("serving_default", X, timeout_ms=60_000)["y"] == 3


def test_session_overrides_are_told_to_have_no_effect(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "assets.extra").mkdir()
    (directory / "assets.extra" / "saved_model_config.pb").touch()
    assert load_model(directory).run("serving_default", X)["y"] == 3
    assert "saved_model_config.pb is ignored: this server" in caplog.text


def test_metagraph_is_that_of_the_flag_or_of_the_hardware(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MetagraphNotFound, match=r"\{serve, tpu\} \(asked for\)"):
        load_model(directory, saved_model_tags=tags.SERVE_TPU)
    monkeypatch.setenv(EMULATION_VARIABLE, "1")
    with pytest.raises(MetagraphNotFound, match=r"\{serve, tpu\} \(by default\)"):
        load_model(directory)
    assert load_model(directory, saved_model_tags=tags.SERVE).run("serving_default", X)["y"] == 3


def test_fallback_is_in_the_status(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EMULATION_VARIABLE, "1")
    manager = Manager(SavedModelLoader(Settings(directory.parent, fallback_to_cpu=True)))
    aspire(manager, "half", {1: directory})
    (status,) = manager.status("half")
    assert status.state is State.AVAILABLE
    assert status.note.startswith("serving {serve} on the CPU instead: no metagraph tagged")


def test_unsafe_model_is_refused_unless_it_is_trusted(tmp_path: Path) -> None:
    def build(x: Any) -> dict[str, Any]:
        return {"y": x + tf.cast(tf.size(tf.io.matching_files("/etc/none*")), tf.float32)}

    directory = models.export(build, tmp_path / "m", tags.SERVE)
    with pytest.raises(UnsafeModel, match=r"1 MatchingFiles \(files\)"):
        load_model(directory)
    assert load_model(directory, forbid_unsafe_ops=False).run("serving_default", X)["y"] == 2


def test_link_out_of_the_base_path_is_refused_unless_it_is_allowed(
    directory: Path, tmp_path: Path
) -> None:
    link = tmp_path / "other" / "1"
    link.parent.mkdir()
    link.symlink_to(directory)
    with pytest.raises(
        CodedError,
        match="leads out of the base path",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ):
        load_model(link)
    assert load_model(link, allow_links=True).run("serving_default", X)["y"] == 3


def test_version_that_is_still_being_copied_is_served_once_it_is_whole(
    directory: Path, tmp_path: Path
) -> None:
    place = tmp_path / "copied" / "1"
    place.mkdir(parents=True)
    (place / "saved_model.pb").write_bytes((directory / "saved_model.pb").read_bytes()[:100])
    manager = Manager(SavedModelLoader(Settings(place.parent)))
    aspire(manager, "half", {1: place})
    (status,) = manager.status("half")
    assert status.state is State.END
    assert status.error is not None
    for path in [*directory.rglob("*")]:
        target = place / path.relative_to(directory)
        target.mkdir(exist_ok=True) if path.is_dir() else target.write_bytes(path.read_bytes())
    for _ in range(2):
        aspire(manager, "half", {1: place})
    with manager.get_servable_handle("half") as servable:
        assert contexts.run(servable.runner, "serving_default", X)["y"] == 3


def test_signature_is_verified_where_it_is_required(directory: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path / "keys")
    flags = {"model_signature_policy": "require", "model_signing_key": str(public)}
    with pytest.raises(
        CodedError,
        match=r"has no model\.sig",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ):
        load_model(directory, **flags)
    signing.sign(directory, private)
    assert load_model(directory, **flags).run("serving_default", X)["y"] == 3
    with (directory / "saved_model.pb").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(
        CodedError,
        match="does not verify",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ):
        load_model(directory, **flags)
