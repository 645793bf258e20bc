"""Versions in S3 and in Google Cloud Storage are served, from real servers of the protocols."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from server.config.model_config import ModelConfig
from server.models.remote_repository import RemoteRepository
from server.storage import file_systems
from server.storage.remote_models import RemoteModels
from tests.server.storage.web_server import write_version
from tpuserve.errors import BasePathNotFound, StorageAccessDenied

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["s3", "gs"])
def scheme(request: pytest.FixtureRequest) -> Iterator[str]:
    """A scheme, whose server runs with an empty bucket named "bucket"."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "s3":
            yield from _start_s3(patch)
        else:
            yield from _start_gs(patch)


def _start_s3(patch: pytest.MonkeyPatch) -> Iterator[str]:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    patch.setenv("S3_ENDPOINT", f"{host}:{port}")
    patch.setenv("S3_USE_HTTPS", "0")
    patch.setenv("AWS_REGION", "us-east-1")
    patch.setenv("AWS_ACCESS_KEY_ID", "key")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket="bucket")
    client.close()
    yield "s3"
    server.stop()


def _start_gs(patch: pytest.MonkeyPatch) -> Iterator[str]:
    from gcp_storage_emulator.server import create_server

    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
    server.start()
    port = server._api._httpd.server_port
    patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    yield "gs"
    server.stop()


def upload(directory: Path, uri: str) -> None:
    file_system: Any = file_systems.open_file_system(uri)
    for path in directory.rglob("*"):
        if path.is_file():
            file_system.pipe_file(f"{uri}/{path.relative_to(directory)}", path.read_bytes())


def versions(uri: str, models: RemoteModels) -> dict[int, Path]:
    return RemoteRepository(ModelConfig("half", uri), models).aspired_versions()


def test_latest_version_is_downloaded_whole(
    scheme: str, tmp_path: Path, remote_models: RemoteModels
) -> None:
    write_version(tmp_path / "1")
    for number in (9, 10):
        upload(tmp_path / "1", f"{scheme}://bucket/models/half/{number}")
    (directory,) = versions(f"{scheme}://bucket/models/half", remote_models).values()
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


def test_version_that_is_overwritten_has_another_directory(
    scheme: str, tmp_path: Path, remote_models: RemoteModels
) -> None:
    uri = f"{scheme}://bucket/changed"
    write_version(tmp_path / "1", "graph")
    write_version(tmp_path / "2", "hparg")
    upload(tmp_path / "1", f"{uri}/1")
    before = versions(uri, remote_models)
    assert versions(uri, remote_models) == before
    upload(tmp_path / "2", f"{uri}/1")
    assert versions(uri, remote_models) != before


def test_base_path_that_is_a_saved_model_is_the_only_version(
    scheme: str, tmp_path: Path, remote_models: RemoteModels
) -> None:
    write_version(tmp_path / "1")
    upload(tmp_path / "1", f"{scheme}://bucket/single")
    assert sorted(versions(f"{scheme}://bucket/single", remote_models)) == [1]


@pytest.mark.parametrize("path", ["absent/half", "bucket/absent"])
def test_missing_bucket_or_path_is_told(
    scheme: str, path: str, remote_models: RemoteModels
) -> None:
    with pytest.raises(BasePathNotFound, match=f"{scheme}://{path} does not exist"):
        versions(f"{scheme}://{path}", remote_models)


def test_missing_credentials_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, remote_models: RemoteModels
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(StorageAccessDenied, match=r"Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACC"):
        versions("s3://bucket/half", remote_models)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_missing_account_of_azure_is_told(
    monkeypatch: pytest.MonkeyPatch, remote_models: RemoteModels
) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        StorageAccessDenied, match=r"az://models/half .*Set AZURE_STORAGE_ACCOUNT_N"
    ):
        versions("az://models/half", remote_models)
