"""The models that there are at the moment, and why others are not."""

from collections.abc import Set

from server.dataplane.results import ModelStatus
from server.models.manager import Manager, statuses
from server.servables.servable import State


def of(manager: Manager, configured: Set[str] | None) -> dict[str, ModelStatus]:
    """How each model is that is to be served, or is still there, by name.

    What was unloaded without a fault is left out, and with the last of its versions a model that
    is not configured any more.

    Args:
      configured: the names of the models that are to be served; None where that is not known.
    """
    found = {}
    for name, versions in statuses(manager, {*manager.names(), *(configured or ())}).items():
        is_configured = configured is None or name in configured
        shown = [
            each
            for each in versions
            if each.state is not State.END or (is_configured and each.error is not None)
        ]
        reason = manager.unavailable_reason(name)
        if shown or reason is not None or (configured is not None and is_configured):
            found[name] = ModelStatus(shown, reason)
    return found
