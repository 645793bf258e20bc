"""Checks that the constants of an export fit into saved_model.pb, which is limited to 2 GiB.

saved_model.pb is a single protobuf message with the graphs of all metagraphs.
"""

from collections.abc import Iterable
from typing import Any

from tpuserve.errors import ExportError
from tpuserve.export.function_walk import walk_graphs

# The largest size of a protobuf message in bytes: protobuf neither writes nor reads larger ones.
MOST_BYTES = 2**31 - 1


def check_proto_size(graphs: Iterable[Any], most_bytes: int | None = None) -> None:
    """Check that the constants of several graphs together fit into one saved_model.pb.

    Raises:
      ExportError: The constants exceed the limit; the message names the largest constant.
    """
    limit = MOST_BYTES if most_bytes is None else most_bytes
    constants = [
        operation
        for graph in graphs
        for function_graph in walk_graphs(graph)
        for operation in function_graph.get_operations()
        if operation.type == "Const"
    ]
    if sum(map(_value_bytes, constants)) <= limit:
        return
    # The sizes in memory exceed the limit. The sizes in the file can be smaller: if all elements of
    # a constant are equal, the file stores a single element.
    stored = [(operation.node_def.ByteSize(), operation) for operation in constants]
    total = sum(size for size, _ in stored)
    if total > limit:
        size, largest = max(stored, key=lambda pair: pair[0])
        raise ExportError(
            f"the graphs hold {total} bytes of constants, each metagraph its own copy, and a "
            f"saved_model.pb can hold {limit}; the largest, {largest.name!r}, has {size} bytes. "
            f"Make it a variable: variables are stored once, outside of the graphs."
        )


def _value_bytes(operation: Any) -> int:
    (tensor,) = operation.outputs
    return int((tensor.shape.num_elements() or 0) * tensor.dtype.size)
