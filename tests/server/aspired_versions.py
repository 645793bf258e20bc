"""Sets the aspired versions of a model and waits until the manager has loaded and unloaded them."""

from collections.abc import Mapping
from pathlib import Path

from server.models.manager import Manager
from server.servables.servable import State
from tpuserve.errors import ModelNotFound


def aspire(manager: Manager, name: str, versions: Mapping[int, Path]) -> None:
    """Make these versions the aspired ones, and wait until all loads and unloads have ended."""

    def is_done() -> bool:
        try:
            states = {status.state for status in manager.status(name)}
        except ModelNotFound:
            states = set()
        is_moving = bool(states & {State.START, State.LOADING, State.UNLOADING})
        # When a version becomes available, the older version that it supersedes is not unloaded
        # yet.
        return not is_moving and not manager._find_superseded(name)

    manager.set_aspired_versions(name, versions)
    assert manager.wait(is_done, timeout_seconds=120)
