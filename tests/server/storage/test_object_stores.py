"""Versions in object stores are served: S3, Google's, Azure's and the Hugging Face Hub.

The real client libraries read from real servers of the protocols.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.storage.remote_models import RemoteModels
from tests.server.storage import stores
from tests.server.storage.stores import Store, versions
from tests.server.storage.web_server import write_version
from tpuserve.errors import BasePathNotFound, CodedError, TpuserveError


@pytest.fixture(scope="module", params=["s3", "gs", "az", "hf"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    with stores.start(request.param, tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.mark.slow
def test_version_is_downloaded_whole(
    store: Store, tmp_path: Path, remote_models: RemoteModels
) -> None:
    write_version(tmp_path / "1")
    for path in ("models/half/9", "models/half/10", "models/half_plus_two/11"):
        store.upload(tmp_path / "1", path)
    directories = versions(store.uri("models/half"), remote_models)
    assert sorted(directories) == [9, 10]
    directory = directories[10]
    assert directory.name == "10"
    remote_models.fetch(directory, lambda: False).close()
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))
    assert names == [
        "saved_model.pb",
        "variables",
        "variables/variables.data",
        "variables/variables.index",
    ]
    assert (directory / "variables/variables.data").read_bytes() == bytes(100_000)


def test_next_listing_has_new_versions_and_other_directories_for_changed_ones(
    store: Store, tmp_path: Path, remote_models: RemoteModels
) -> None:
    uri = store.uri("changed")
    write_version(tmp_path / "1", "graph")
    write_version(tmp_path / "2", "hparg")
    store.upload(tmp_path / "1", "changed/1")
    before = versions(uri, remote_models)
    assert versions(uri, remote_models) == before
    store.upload(tmp_path / "2", "changed/1")
    store.upload(tmp_path / "2", "changed/2")
    after = versions(uri, remote_models)
    assert (sorted(before), sorted(after)) == ([1], [1, 2])
    assert after[1] != before[1]


def test_base_path_that_is_a_saved_model_is_the_only_version(
    store: Store, tmp_path: Path, remote_models: RemoteModels
) -> None:
    write_version(tmp_path / "1")
    store.upload(tmp_path / "1", "single")
    assert sorted(versions(store.uri("single"), remote_models)) == [1]


def test_missing_path_is_told(store: Store, tmp_path: Path, remote_models: RemoteModels) -> None:
    write_version(tmp_path / "1")
    store.upload(tmp_path / "1", "models/other/1")
    uri = store.uri("models/absent")
    with pytest.raises(BasePathNotFound, match=f"{uri} does not exist.*, as {store.scheme}://"):
        versions(uri, remote_models)


def test_missing_bucket_container_or_repository_is_told(
    store: Store, remote_models: RemoteModels
) -> None:
    uri = f"{store.scheme}://absent/half"
    error: type[TpuserveError] = BasePathNotFound
    text = f"{uri} does not exist"
    if store.scheme == "hf":
        # The hub does not tell whether a repository is missing or private.
        error, text = CodedError, "absent/half .repository not found.*Check the name, and"
    with pytest.raises(error, match=text):
        versions(uri, remote_models)
