"""Converts the collective ops in a StableHLO module of TensorFlow to the form that jax needs.

jax runs a program on several devices as one replica with a partition for each device (SPMD).
"""

import itertools
from collections.abc import Sequence
from typing import Any

from tpuserve.stablehlo import jax_internals

MARKER_PREFIX = "tpuserve."
ALL_TO_ALL = MARKER_PREFIX + "all_to_all"
COLLECTIVE_PERMUTE = MARKER_PREFIX + "collective_permute"

_REDUCTIONS = ("stablehlo.all_reduce", "stablehlo.reduce_scatter")
_REPLICA_ID = "stablehlo.replica_id"
_CUSTOM_CALL = "stablehlo.custom_call"


def all_to_all_config(
    split_dimension: int, concat_dimension: int, split_count: int, groups: Sequence[Sequence[int]]
) -> str:
    """Return the backend_config of a custom call that stands for an all-to-all."""
    return f"{split_dimension};{concat_dimension};{split_count};{_dense(groups)}"


def permute_config(pairs: Sequence[Sequence[int]]) -> str:
    """Return the backend_config of a custom call that stands for a collective permute."""
    return _dense(pairs)


def convert_collectives(module: Any) -> None:
    """Convert the collectives of an MLIR module from replicas to partitions, in place.

    A reduction gets a channel handle, so that it runs across partitions.
    """
    from jaxlib.mlir import ir

    channels = itertools.count(1)
    with module.context, ir.Location.unknown():
        for operation in jax_internals.find_operations(module, _is_collective):
            if operation.name == _REPLICA_ID:
                _replace(operation, "stablehlo.partition_id", [], {})
                continue
            # In a channel handle of StableHLO, type 1 means a channel from device to device.
            channel = ir.Attribute.parse(
                f"#stablehlo.channel_handle<handle = {next(channels)}, type = 1>"
            )
            if operation.name in _REDUCTIONS:
                operation.attributes["channel_handle"] = channel
                operation.attributes["use_global_device_ids"] = ir.UnitAttr.get()
            else:
                _replace_marker(operation, channel)


def _is_collective(operation: Any) -> bool:
    if operation.name == _CUSTOM_CALL:
        return _text(operation, "call_target_name").startswith(MARKER_PREFIX)
    return operation.name in (*_REDUCTIONS, _REPLICA_ID)


def _replace_marker(operation: Any, channel: Any) -> None:
    from jaxlib.mlir import ir

    config = _text(operation, "backend_config")
    operands = list(operation.operands)
    if _text(operation, "call_target_name") == COLLECTIVE_PERMUTE:
        attributes = {"source_target_pairs": ir.Attribute.parse(config), "channel_handle": channel}
        _replace(operation, "stablehlo.collective_permute", operands, attributes)
        return
    split, concat, count, groups = config.split(";")
    attributes = {
        "split_dimension": ir.Attribute.parse(f"{split} : i64"),
        "concat_dimension": ir.Attribute.parse(f"{concat} : i64"),
        "split_count": ir.Attribute.parse(f"{count} : i64"),
        "replica_groups": ir.Attribute.parse(groups),
        "channel_handle": channel,
    }
    _replace(operation, "stablehlo.all_to_all", operands, attributes)


def _replace(operation: Any, name: str, operands: Sequence[Any], attributes: Any) -> None:
    """Replace an MLIR operation that has one result by a new operation called `name`."""
    from jaxlib.mlir import ir

    with ir.InsertionPoint(operation):
        replacement = ir.Operation.create(
            name,
            results=[operation.results[0].type],
            operands=operands,
            attributes=attributes,
        )
    operation.results[0].replace_all_uses_with(replacement.results[0])
    operation.erase()


def _text(operation: Any, attribute: str) -> str:
    from jaxlib.mlir import ir

    text: str = ir.StringAttr(operation.attributes[attribute]).value
    return text


def _dense(rows: Sequence[Sequence[int]]) -> str:
    values = [list(row) for row in rows]
    return f"dense<{values}> : tensor<{len(values)}x{len(values[0])}xi64>"
