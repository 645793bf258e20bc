"""Several metrics, as programs hand them to an evaluation."""

from collections.abc import Mapping
from typing import Any

from tpuserve.errors import InvalidSetting


def aggregate_metrics(*value_update_tuples: Any) -> tuple[list[Any], list[Any]]:
    """The values of metrics, and their update ops."""
    if not value_update_tuples:
        raise InvalidSetting("aggregate_metrics got no metrics. Give at least one.")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


def aggregate_metric_map(
    names_to_tuples: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Name → value, and name → update op."""
    values = {name: pair[0] for name, pair in names_to_tuples.items()}
    return values, {name: pair[1] for name, pair in names_to_tuples.items()}
