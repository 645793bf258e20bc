"""How much of a SavedModel's graphs is constants: one file holds them all, and has its limit."""

from collections.abc import Iterable
from typing import Any

from tpuserve.errors import ExportError
from tpuserve.export.function_walk import walk_graphs

# Source: protobuf, which neither writes nor reads a longer message.
MOST_BYTES = 2**31 - 1


def check_proto_size(graphs: Iterable[Any], most_bytes: int | None = None) -> None:
    """Refuses graphs with so many constants that no saved_model.pb can hold them together.

    Args:
      graphs: of all metagraphs; the functions they call count.
      most_bytes: how many there may be; None for `MOST_BYTES`.

    Raises:
      ExportError: names the largest constant.
    """
    most = MOST_BYTES if most_bytes is None else most_bytes
    found = [
        operation
        for graph in graphs
        for each in walk_graphs(graph)
        for operation in each.get_operations()
        if operation.type == "Const"
    ]
    if sum(map(_bytes, found)) <= most:
        return
    # One value over and over is written once, so that only the message itself tells, which is
    # slow to get.
    written = [(each.node_def.ByteSize(), each) for each in found]
    total = sum(size for size, _ in written)
    if total > most:
        size, largest = max(written, key=lambda pair: pair[0])
        raise ExportError(
            f"the graphs hold {total} bytes of constants, each metagraph its own copy, and a "
            f"saved_model.pb can hold {most}; the largest, {largest.name!r}, has {size}. Make it a "
            f"variable: those are written once, and beside the graphs."
        )


def _bytes(operation: Any) -> int:
    (tensor,) = operation.outputs
    return int((tensor.shape.num_elements() or 0) * tensor.dtype.size)
