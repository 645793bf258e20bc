"""The data plane of the tests here: that of the models' own process, and that of another one."""

from collections.abc import Iterator

import pytest

from server.dataplane import DataPlane, DataPlaneInterface
from server.models.manager import Manager
from tests.server.remote import joined


@pytest.fixture(params=["local", "remote"])
def dataplane(manager: Manager, request: pytest.FixtureRequest) -> Iterator[DataPlaneInterface]:
    local = DataPlane(manager)
    if request.param == "local":
        yield local
        return
    with joined.remote(local) as remote:
        yield remote
