"""Runs each test with a local data plane, and with one that forwards requests through a socket."""

from collections.abc import Iterator

import pytest

from server.dataplane import DataPlane, DataPlaneInterface
from server.models.manager import Manager
from tests.server.remote import in_process_connection


@pytest.fixture(params=["local", "remote"])
def dataplane(manager: Manager, request: pytest.FixtureRequest) -> Iterator[DataPlaneInterface]:
    local = DataPlane(manager)
    if request.param == "local":
        yield local
        return
    with in_process_connection.remote(local) as remote:
        yield remote
