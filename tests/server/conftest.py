"""Fixtures of the server's tests: a manager and a data plane with version 3 of a fake model."""

from pathlib import Path

import pytest

from server.dataplane import DataPlane
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader


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
