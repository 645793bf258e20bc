"""Functions that split (value, update op) pairs of metrics."""

from collections.abc import Mapping
from typing import Any

from tpuserve.errors import InvalidSetting


def aggregate_metrics(*value_update_tuples: Any) -> tuple[list[Any], list[Any]]:
    """Split (value, update op) pairs into a list of values and a list of update ops."""
    if not value_update_tuples:
        raise InvalidSetting("aggregate_metrics got no metrics. Pass at least one.")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


def aggregate_metric_map(
    names_to_tuples: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a dict of (value, update op) pairs into a dict of values and a dict of update ops."""
    values = {name: pair[0] for name, pair in names_to_tuples.items()}
    return values, {name: pair[1] for name, pair in names_to_tuples.items()}
