"""Copies a graph without its TPU ops, for a session over several TensorFlow servers.

Such a session assigns a device to every op of its graph, even to an op that never runs. Servers
that emulate a TPU have no device for TPU ops, so the graph must not contain TPU ops.
"""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from tpuserve.graph.graph_walk import CLUSTER_ATTRIBUTE, called_functions, possible_calls
from tpuserve.graph.references import node_name
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.rules.op_table import is_tpu_op
from trainer.backends.tpu.cluster.python_functions import is_served_by_workers

# The types of ops that call a Python function. The process that builds the graph has the function,
# but other processes may not have it.
_PYTHON_OPS = frozenset(("EagerPyFunc", "PyFunc", "PyFuncStateless"))


def copy_runnable_part(graph: Any, default_device: str) -> Any:
    """Copy the ops of a graph that do not depend on a TPU op; keep their names.

    Args:
      graph: a tf.Graph that has both the TPU computation and its replacement by CPU ops.
      default_device: the device of the ops that have none. If the device of an op lacks a part,
        such as the task, this device supplies the part.

    Returns:
      The new tf.Graph.

    Raises:
      InvalidSetting: an op that is placed on another process calls a Python function that only the
        leader has. The leader is the process that builds the graph.
    """
    definition = graph.as_graph_def()
    functions = {function.signature.name: function for function in definition.library.function}
    tpu_functions = _callers_of(lambda node: is_tpu_op(node.op), functions)
    python_functions = _callers_of(_needs_leader, functions)
    unrunnable = _with_consumers(
        [
            node.name
            for node in definition.node
            if is_tpu_op(node.op) or CLUSTER_ATTRIBUTE in node.attr or _calls(node, tpu_functions)
        ],
        definition,
    )
    runnable = [node for node in definition.node if node.name not in unrunnable]
    default = tf.DeviceSpec.from_string(default_device)
    for node in runnable:
        device = default.make_merged_spec(tf.DeviceSpec.from_string(node.device))
        if _needs_leader(node) or _calls(node, python_functions):
            _check_is_local(node, device, default)
        node.device = device.to_string()
        _remove_colocations(node, unrunnable)
    copied = tf.compat.v1.GraphDef(versions=definition.versions, library=definition.library)
    copied.node.extend(runnable)
    result = tf.Graph()
    with result.as_default():
        tf.graph_util.import_graph_def(copied, name="")
    return result


def _needs_leader(node: Any) -> bool:
    """Return whether a node calls a Python function that only the leader has.

    The leader is the process that builds the graph.
    """
    return node.op in _PYTHON_OPS and not is_served_by_workers(node.attr["token"].s)


def _callers_of(is_node: Callable[[Any], bool], functions: dict[str, Any]) -> set[str]:
    """Return the names of the functions that contain certain nodes, themselves or in their callees.

    Args:
      is_node: returns whether a NodeDef is one of the nodes to find.
      functions: name of a function → its FunctionDef.
    """
    callers: dict[str, list[str]] = {}
    for name, function in functions.items():
        for called in possible_calls(function.node_def):
            callers.setdefault(called, []).append(name)
    names = [name for name, function in functions.items() if any(map(is_node, function.node_def))]
    return find_reachable(names, lambda name: callers.get(name, ()))


def _calls(node: Any, names: set[str]) -> bool:
    return node.op in names or not names.isdisjoint(called_functions(node))


def _with_consumers(names: Iterable[str], definition: Any) -> set[str]:
    """Extend a set of nodes of a GraphDef by all nodes that depend on one of them.

    Args:
      names: the names of the nodes in the set.
      definition: the GraphDef.

    Returns:
      The names of the nodes in the extended set.
    """
    consumers: dict[str, list[str]] = {}
    for node in definition.node:
        for reference in node.input:
            consumers.setdefault(node_name(reference), []).append(node.name)
    return find_reachable(names, lambda name: consumers.get(name, ()))


def _check_is_local(node: Any, device: Any, default: Any) -> None:
    """Check that a node that calls Python code runs on the task of the default device.

    Only the process of this task has the Python code.

    Raises:
      InvalidSetting: the node is on another task.
    """
    if (device.job, device.task) == (default.job, default.task):
        return
    raise InvalidSetting(
        f"{node.op} {node.name!r} calls Python code on {node.device}, and only the process of "
        f"/job:{default.job}/task:{default.task} has this code. The other processes have the "
        f"input_fn of their first call of train, evaluate or predict, which does not return there. "
        f"Make the call with this input_fn the first, or write input_fn without tf.py_function, "
        f"tf.numpy_function and Dataset.from_generator, for example with a TFRecordDataset."
    )


def _remove_colocations(node: Any, removed: set[str]) -> None:
    """Remove a node's colocation constraints with nodes that are left out of the copied graph."""
    if "_class" not in node.attr:
        return
    constraints = [
        constraint
        for constraint in node.attr["_class"].list.s
        if constraint.decode().removeprefix("loc:@") not in removed
    ]
    del node.attr["_class"].list.s[:]
    node.attr["_class"].list.s.extend(constraints)
