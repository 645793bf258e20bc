"""Divides the rows of an embedding table among devices, and adapts a training step to this.

Each replica runs on one device, which stores only the rows of its replica (a shard).
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from tpuserve.graph.graph_walk import skip_identities
from tpuserve.graph.references import data_inputs, tensor_name
from tpuserve.graph.row_sharding import RowSharding
from tpuserve.pjrt.device_core import Array

# Types of the ops whose inputs are the handle of a variable and numbers of its rows.
_WITH_ROWS = ("ResourceGather", "ResourceScatterAdd", "ResourceScatterUpdate")
_REPLICA = "tpuserve_replica"

Refuse = Callable[[Any, str, str], NoReturn]
"""Takes a node, the name of its function ("" for the step) and a reason; raises an error."""


def take_shard(value: Array, sharding: RowSharding, replica: int) -> Array:
    """Return the rows of a variable that a replica stores, followed by padding rows of zeros."""
    rows = sharding.rows_of(replica)
    part = value[rows.start : rows.stop : rows.step]
    padding = sharding.rows_per_replica - len(rows)
    return np.pad(part, [(0, padding), *[(0, 0)] * (value.ndim - 1)]) if padding else part


def put_shard(value: Array, sharding: RowSharding, replica: int, shard: Array) -> None:
    """Copy the rows that a replica stores into the whole variable; the inverse of `take_shard`."""
    rows = sharding.rows_of(replica)
    value[rows.start : rows.stop : rows.step] = shard[: len(rows)]


def use_local_rows(graph: Any, shardings: Mapping[str, RowSharding], refuse: Refuse) -> None:
    """Let the ops of a training step use the row numbers of the shard on their device.

    The ops gather and scatter rows by their numbers in the whole variable. These numbers are
    converted to positions in the shard.

    Args:
      shardings: name of the tensor that is the handle of a divided variable → the division.
      refuse: raises an error. It is called for an op that uses a divided variable in any other way
        than to gather or scatter rows by their numbers.
    """
    by_name = {node.name: node for node in graph.node}
    local: dict[tuple[str, RowSharding], str] = {}
    for node in list(graph.node):
        for position, reference in enumerate(data_inputs(node)):
            sharding = shardings.get(tensor_name(skip_identities(reference, by_name)))
            if sharding is None or node.op == "Identity":
                continue
            has_batch = "batch_dims" in node.attr and node.attr["batch_dims"].i
            if position or node.op not in _WITH_ROWS or has_batch:
                refuse(node, "", "uses a variable whose rows are divided among the replicas")
            key = tensor_name(node.input[1]), sharding
            if key not in local:
                dtype = node.attr["Tindices"].type
                local[key] = _add_local_rows(graph, key[0], dtype, sharding, len(local))
            node.input[1] = local[key]


def _add_local_rows(graph: Any, rows: str, dtype: int, sharding: RowSharding, number: int) -> str:
    """Add nodes that convert row numbers of a whole variable to positions in a replica's shard."""
    import tensorflow as tf

    with tf.Graph().as_default() as computation:
        replica_op = tf.compat.v1.GraphDef()
        replica_op.node.add(name=_REPLICA, op="XlaReplicaId")
        (replica,) = tf.import_graph_def(replica_op, return_elements=[f"{_REPLICA}:0"], name="")
        placeholder = tf.compat.v1.placeholder(dtype, name="rows")
        is_own = tf.equal(sharding.owner(placeholder), tf.cast(replica, dtype))
        is_row = (placeholder >= 0) & (placeholder < sharding.num_rows)
        outside = tf.constant(sharding.rows_per_replica, dtype)
        result = tf.where(is_own & is_row, sharding.local_row(placeholder), outside)
    prefix = f"tpuserve_local_rows_{number}/"
    for node in computation.as_graph_def().node:
        if node.name == placeholder.op.name:
            continue
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.name = prefix + node.name
        inputs = [rows if name == placeholder.op.name else prefix + name for name in node.input]
        del copy.input[:]
        copy.input.extend(inputs)
    return f"{prefix}{result.op.name}:0"
