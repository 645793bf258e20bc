"""Starts servers of object stores, and sets the environment variables that name them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest

from server.config.model_config import AllPolicy, ModelConfig
from server.models.file_system_source import RemoteRepository
from server.storage import file_systems
from server.storage.remote_models import RemoteModels
from tests.server.storage.azure_server import AzureHandler, connection_string
from tests.server.storage.hub_server import TOKEN, HubHandler
from tests.server.storage.web_server import WebServer, serve_directory

NAME = "store"
"""The bucket, the container or the user that each server has."""


@dataclass(frozen=True)
class Store:
    """A server of an object store.

    Attributes:
      scheme: the scheme of the URIs of its base paths, such as "s3".
      web_server: the server, if it serves a directory; None for moto and gcp-storage-emulator.
    """

    scheme: str
    web_server: WebServer | None = None

    def uri(self, path: str) -> str:
        return f"{self.scheme}://{NAME}/{path}"

    def upload(self, directory: Path, path: str) -> None:
        """Copy the files of a directory to the store."""
        file_system: Any = None
        if self.web_server is None:
            file_system = file_systems.open_file_system(self.uri(path))
        for file in filter(Path.is_file, directory.rglob("*")):
            name = f"{NAME}/{path}/{file.relative_to(directory)}"
            if self.web_server is None:
                file_system.pipe_file(f"{self.scheme}://{name}", file.read_bytes())
            else:
                target = self.web_server.directory / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())


@contextmanager
def start(scheme: str, directory: Path) -> Iterator[Store]:
    """Start the server of a scheme.

    Args:
      scheme: "s3", "gs", "az" or "hf".
      directory: the directory of the files for "az" and "hf".
    """
    # The instances of file systems remember the addresses of earlier servers.
    file_system: Any = fsspec.get_filesystem_class(scheme)
    file_system.clear_instance_cache()
    with pytest.MonkeyPatch.context() as patch:
        yield from _STARTERS[scheme](patch, directory)
    file_system.clear_instance_cache()


def hide_google_accounts(patch: pytest.MonkeyPatch, directory: Path) -> None:
    """Hide the Google accounts of the machine and of its user from gcsfs.

    Args:
      patch: changes the environment variables.
      directory: replaces the directory of gcloud's settings; it must have no such settings.
    """
    patch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    patch.setenv("CLOUDSDK_CONFIG", str(directory))
    patch.setenv("NO_GCE_CHECK", "true")


def versions(uri: str, models: RemoteModels) -> dict[int, Path]:
    """List all versions of a base path: version → directory in the cache."""
    return RemoteRepository(ModelConfig("half", uri, AllPolicy()), models).aspired_versions()


def _start_s3(patch: pytest.MonkeyPatch, directory: Path) -> Iterator[Store]:
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
    client.create_bucket(Bucket=NAME)
    client.close()
    yield Store("s3")
    server.stop()


def _start_gs(patch: pytest.MonkeyPatch, directory: Path) -> Iterator[Store]:
    from gcp_storage_emulator.server import create_server

    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket=NAME)
    server.start()
    port = server._api._httpd.server_port
    patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    hide_google_accounts(patch, directory)
    yield Store("gs")
    server.stop()


def _start_az(patch: pytest.MonkeyPatch, directory: Path) -> Iterator[Store]:
    with serve_directory(directory, AzureHandler) as server:
        patch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(server.uri))
        yield Store("az", server)


def _start_hf(patch: pytest.MonkeyPatch, directory: Path) -> Iterator[Store]:
    with serve_directory(directory, HubHandler) as server:
        patch.setenv("HF_ENDPOINT", server.uri)
        patch.setenv("HF_TOKEN", TOKEN)
        yield Store("hf", server)


_STARTERS: dict[str, Callable[[pytest.MonkeyPatch, Path], Iterator[Store]]] = {
    "s3": _start_s3,
    "gs": _start_gs,
    "az": _start_az,
    "hf": _start_hf,
}
