"""Versions on a web server are listed and downloaded whole, or not at all."""

import hashlib
import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest

from server.config.model_config import AllPolicy, ModelConfig
from server.models.file_system_source import RemoteRepository
from server.storage.remote_models import RemoteModels
from tests.server.storage.web_server import (
    WebServer,
    check_cancelled_download,
    write_version,
)
from tpuserve.errors import (
    BasePathNotFound,
    Code,
    CodedError,
    ExtraNotInstalled,
    InvalidConfig,
    ModelTooLarge,
    Unavailable,
    VersionNotFound,
)


def versions(uri: str, models: RemoteModels) -> dict[int, Path]:
    return RemoteRepository(ModelConfig("half", uri, AllPolicy()), models).aspired_versions()


def fetch(models: RemoteModels, directory: Path) -> None:
    models.fetch(directory, lambda: False).close()


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def write_index(base: Path) -> None:
    """Write what `sha256sum` prints of all files."""
    lines = [
        f"{hashlib.sha256(content).hexdigest()}  ./{name}\n"
        for name, content in contents(base).items()
    ]
    (base / "SHA256SUMS").write_text("".join(lines))


@pytest.mark.parametrize("is_indexed", [False, True])
def test_numbered_directories_are_versions(
    site: Path, web_server: WebServer, remote_models: RemoteModels, is_indexed: bool
) -> None:
    write_version(site / "half" / "1")
    write_version(site / "half" / "002")
    (site / "half" / "notes 1").mkdir()
    (site / "half" / "notes 1" / "a b.txt").touch()
    if is_indexed:
        write_index(site / "half")
    directories = versions(f"{web_server.uri}/half", remote_models)
    assert sorted(directories) == [1, 2]
    fetch(remote_models, directories[2])
    assert directories[2].name == "2"
    assert contents(directories[2]) == contents(site / "half" / "002")


@pytest.mark.parametrize("is_indexed", [False, True])
def test_base_path_that_is_a_saved_model_is_the_only_version(
    site: Path, web_server: WebServer, remote_models: RemoteModels, is_indexed: bool
) -> None:
    write_version(site / "half")
    if is_indexed:
        write_index(site / "half")
    directories = versions(f"{web_server.uri}/half/", remote_models)
    assert sorted(directories) == [1]
    fetch(remote_models, directories[1])
    assert (directories[1] / "saved_model.pb").read_text() == "graph"


def test_changed_version_has_another_directory(
    site: Path, web_server: WebServer, remote_models: RemoteModels
) -> None:
    write_version(site / "half" / "1")
    before = versions(f"{web_server.uri}/half", remote_models)
    assert versions(f"{web_server.uri}/half", remote_models) == before
    (site / "half" / "1" / "saved_model.pb").write_text("another graph")
    assert versions(f"{web_server.uri}/half", remote_models) != before


def test_cut_download_leaves_nothing(
    site: Path, web_server: WebServer, remote_models: RemoteModels, cache_directory: Path
) -> None:
    write_version(site / "half" / "1")
    (directory,) = versions(f"{web_server.uri}/half", remote_models).values()
    web_server.cut_paths.add("/half/1/variables/variables.data")
    with pytest.raises((Unavailable, CodedError), match=r"variables\.data"):
        fetch(remote_models, directory)
    assert [path.name for path in cache_directory.iterdir()] == ["lock"]
    web_server.cut_paths.clear()
    fetch(remote_models, directory)
    assert contents(directory) == contents(site / "half" / "1")


def test_version_that_changes_during_its_download_is_not_kept(
    site: Path, web_server: WebServer, remote_models: RemoteModels, cache_directory: Path
) -> None:
    write_version(site / "half" / "1")
    (directory,) = versions(f"{web_server.uri}/half", remote_models).values()

    def change(path: str) -> None:
        if path.endswith("saved_model.pb"):
            (site / "half" / "1" / "late").touch()

    web_server.before_get = change
    with pytest.raises(
        CodedError,
        match="changed while it was downloaded",
        check=lambda error: error.code is Code.DATA_LOSS,
    ):
        fetch(remote_models, directory)
    assert [path.name for path in cache_directory.iterdir()] == ["lock"]


def test_file_with_another_checksum_is_refused(
    site: Path, web_server: WebServer, remote_models: RemoteModels
) -> None:
    write_version(site / "half" / "1")
    write_index(site / "half")
    (directory,) = versions(f"{web_server.uri}/half", remote_models).values()
    (site / "half" / "1" / "saved_model.pb").write_text("hparg")
    with pytest.raises(
        CodedError,
        match=r"saved_model.pb has the sha256 [0-9a-f]{64} in",
        check=lambda error: error.code is Code.DATA_LOSS,
    ):
        fetch(remote_models, directory)
    assert not directory.exists()


def test_download_ends_when_its_version_is_no_longer_needed(
    site: Path, web_server: WebServer, remote_models: RemoteModels
) -> None:
    write_version(site / "half" / "1")
    (directory,) = versions(f"{web_server.uri}/half", remote_models).values()
    check_cancelled_download(web_server, remote_models, directory)


def test_index_with_too_many_files_of_a_version_is_refused(
    site: Path, web_server: WebServer, remote_models: RemoteModels
) -> None:
    (site / "half").mkdir()
    lines = "".join(f"{'0' * 64}  1/{number}\n" for number in range(10_001))
    (site / "half" / "SHA256SUMS").write_text(lines)
    with pytest.raises(ModelTooLarge, match="lists 10001 files of .*/half/1, and a version may"):
        versions(f"{web_server.uri}/half", remote_models)


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        ("absent", BasePathNotFound, "/absent does not exist, or has no files. Give a base path"),
        ("empty", VersionNotFound, "no version directory in .*/empty. Upload the model"),
        ("refused", CodedError, "cannot be read with the credentials of this .*403"),
        ("escaping", CodedError, "has the path '1/../../x', which leads out of the model"),
        ("wrong", InvalidConfig, "/SHA256SUMS has the line 'no', and each line must be a SHA-256"),
    ],
)
def test_base_path_that_cannot_be_used_is_told(
    site: Path,
    web_server: WebServer,
    remote_models: RemoteModels,
    path: str,
    error: type[Exception],
    text: str,
) -> None:
    (site / "empty" / "best").mkdir(parents=True)
    for name, index in (("escaping", f"{'0' * 64}  1/../../x\n"), ("wrong", "no\n")):
        (site / name).mkdir()
        (site / name / "SHA256SUMS").write_text(index)
    web_server.refused_paths.update(["/refused/", "/refused/SHA256SUMS"])
    with pytest.raises(error, match=text) as caught:
        versions(f"{web_server.uri}/{path}", remote_models)
    assert "\n" not in str(caught.value)


def test_host_that_does_not_answer_is_told(remote_models: RemoteModels) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{unheard.getsockname()[1]}/half"
        with pytest.raises(Unavailable, match="cannot be read: Cannot connect to host 127"):
            versions(uri, remote_models)


def test_extra_that_is_not_installed_is_told(
    remote_models: RemoteModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str, *others: Any) -> Any:
        return None if name == "s3fs" else object()

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(ExtraNotInstalled, match=r'needs the package s3fs, .*"\.\[remote\]"'):
        versions("s3://bucket/half", remote_models)


def test_old_contents_of_a_version_are_forgotten(
    site: Path, web_server: WebServer, remote_models: RemoteModels
) -> None:
    write_version(site / "half" / "1")
    directories: list[Path] = []
    for number in range(8):
        (site / "half" / "1" / "saved_model.pb").write_text("x" * number)
        directories += versions(f"{web_server.uri}/half", remote_models).values()
    assert not remote_models.is_remote(directories[0])
    assert remote_models.is_remote(directories[-2])
    fetch(remote_models, directories[-1])
