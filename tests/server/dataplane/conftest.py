"""The data plane that the tests of this room ask."""

import pytest

from server.models.manager import Manager
from tests.server.waiting_data_plane import WaitingDataPlane


@pytest.fixture
def dataplane(manager: Manager) -> WaitingDataPlane:
    return WaitingDataPlane(manager)
