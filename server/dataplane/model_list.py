"""Lists the models of a server with the status of their versions."""

from collections.abc import Mapping, Set

from server.dataplane.results import ModelStatus
from server.models.manager import Manager, statuses
from server.servables.servable import State


def list_models(
    manager: Manager, configured: Set[str] | None, sizes: Mapping[str, int]
) -> dict[str, ModelStatus]:
    """Return the status of every model that is configured or still has versions.

    The result does not contain versions that were unloaded without an error.

    Args:
      configured: the names of the configured models; None if the configuration is unknown.
      sizes: model name → the memory that the model needs, in bytes, of the models in memory whose
        size is known.
    """
    models = {}
    for name, versions in statuses(manager, {*manager.names(), *(configured or ())}).items():
        is_configured = configured is None or name in configured
        listed = [
            status
            for status in versions
            if status.state is not State.END or (is_configured and status.error is not None)
        ]
        reason = manager.unavailable_reason(name)
        if listed or reason is not None or (configured is not None and is_configured):
            models[name] = ModelStatus(listed, reason, sizes.get(name, 0))
    return models
