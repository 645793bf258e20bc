"""Fixtures of the server's tests: a manager and a data plane with version 3 of a fake model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.dataplane import DataPlane
from server.models.manager import Manager
from tests.processes import ServeProcess
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader
from tpuserve.client import Client


@pytest.fixture
def loader() -> FakeLoader:
    return FakeLoader()


@pytest.fixture
def manager(loader: FakeLoader) -> Manager:
    manager = Manager(loader)
    aspire(manager, "half", {3: Path("/models/half/3")})
    return manager


@pytest.fixture
def dataplane(manager: Manager) -> DataPlane:
    return DataPlane(manager)


@pytest.fixture(scope="module", params=[[], ["--enable_batching"]], ids=["plain", "batching"])
def server_process(request: pytest.FixtureRequest, base_path: Path) -> Iterator[ServeProcess]:
    """A server of the model "half" in the module's fixture base_path, with and without batching."""
    server = ServeProcess(base_path, flags=request.param)
    yield server
    server.stop()


@pytest.fixture(params=["http v1", "grpc v1", "http v2", "grpc v2"])
def each_client(request: pytest.FixtureRequest, server_process: ServeProcess) -> Iterator[Client]:
    """A client of `server_process` over each of its APIs."""
    scheme, api = request.param.split()
    address = server_process.rest if scheme == "http" else server_process.rpc
    with Client(f"{scheme}://{address}", api=api) as client:
        yield client
