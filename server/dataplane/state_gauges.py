"""What the state of the models is, as metrics that are looked up when they are asked for."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from server.metrics import Metrics
from server.models.manager import Manager, statuses
from server.servables.servable import State
from tpuserve.errors import ModelNotFound

# A model's identity in ML Metadata, where its exporter has left it.
UUID_FILE = Path("assets.extra", "mlmd_uuid")

_MAX_UUID_CHARACTERS = 256

Values: TypeAlias = Mapping[tuple[str, ...], float]


def watch(metrics: Metrics, manager: Manager) -> None:
    """Exports the state, the device and the identity of each version."""
    metrics.watch_states(partial(_states, manager))
    metrics.watch_fallbacks(partial(_fallbacks, manager))
    metrics.watch_provenance(partial(_provenance, manager))


def _states(manager: Manager) -> Values:
    # What was unloaded is left out: it would grow with each new version.
    return {
        (name, str(each.version), each.state.name): 1
        for name, versions in statuses(manager, manager.names()).items()
        for each in versions
        if each.state is not State.END or each.error is not None
    }


def _fallbacks(manager: Manager) -> Values:
    return {
        (name, str(each.version)): int(bool(each.note))
        for name, versions in statuses(manager, manager.names()).items()
        for each in versions
        if each.state is State.AVAILABLE
    }


def _provenance(manager: Manager) -> Values:
    found: dict[tuple[str, ...], float] = {}
    for name, version in _fallbacks(manager):
        uuid = _uuid(manager, name, int(version))
        if uuid:
            found[name, version, uuid] = 1
    return found


def _uuid(manager: Manager, name: str, version: int) -> str:
    try:
        with manager.get_servable_handle(name, version) as servable:
            if servable.directory is None:
                return ""
            with (servable.directory / UUID_FILE).open(encoding="utf-8") as file:
                return file.read(_MAX_UUID_CHARACTERS).strip()
    except (OSError, UnicodeDecodeError, ModelNotFound):
        return ""
