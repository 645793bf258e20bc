"""Metrics of the states of all model versions, computed whenever the metrics are read."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from server.metrics import Metrics
from server.models.manager import Manager, statuses
from server.servables.servable import State
from tpuserve.errors import ModelNotFound

# The file of a SavedModel in which an exporter, such as TFX, stores the model's ML Metadata
# identifier.
UUID_FILE = Path("assets.extra", "mlmd_uuid")

_MAX_UUID_CHARACTERS = 256

Values: TypeAlias = Mapping[tuple[str, ...], float]


def register_state_gauges(metrics: Metrics, manager: Manager) -> None:
    """Register the metrics of the states of all model versions.

    The metrics show for each version its state, its metagraph, whether it runs on the CPU instead
    of the TPU, and its ML Metadata identifier.
    """
    metrics.watch_states(partial(_states, manager))
    metrics.watch_metagraphs(partial(_metagraphs, manager))
    metrics.watch_fallbacks(partial(_fallbacks, manager))
    metrics.watch_provenance(partial(_provenance, manager))


def _states(manager: Manager) -> Values:
    # Unloaded versions without an error have no metric: otherwise the number of time series would
    # grow with each new version.
    return {
        (name, str(status.version), status.state.name): 1
        for name, versions in statuses(manager, manager.names()).items()
        for status in versions
        if status.state is not State.END or status.error is not None
    }


def _fallbacks(manager: Manager) -> Values:
    return {
        (name, str(status.version)): int(bool(status.note))
        for name, versions in statuses(manager, manager.names()).items()
        for status in versions
        if status.state is State.AVAILABLE
    }


def _metagraphs(manager: Manager) -> Values:
    metagraphs: dict[tuple[str, ...], float] = {}
    for name, version in _fallbacks(manager):
        with (
            suppress(ModelNotFound),
            manager.get_servable_handle(name, int(version), must_be_loaded=True) as servable,
        ):
            device = getattr(servable.model.choice, "device", "")
            metagraphs[name, version, servable.metagraph, str(device)] = 1
    return metagraphs


def _provenance(manager: Manager) -> Values:
    identifiers: dict[tuple[str, ...], float] = {}
    for name, version in _fallbacks(manager):
        uuid = _read_uuid(manager, name, int(version))
        if uuid:
            identifiers[name, version, uuid] = 1
    return identifiers


def _read_uuid(manager: Manager, name: str, version: int) -> str:
    try:
        with manager.get_servable_handle(name, version, must_be_loaded=True) as servable:
            if servable.directory is None:
                return ""
            with (servable.directory / UUID_FILE).open(encoding="utf-8") as file:
                return file.read(_MAX_UUID_CHARACTERS).strip()
    except (OSError, UnicodeDecodeError, ModelNotFound):
        return ""
