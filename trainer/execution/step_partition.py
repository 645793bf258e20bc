"""Divides a training step into the ops that XLA compiles and the ops before and after these."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.rules.xla_kernels import has_xla_kernel
from trainer.tensorflow_internals import get_private_attribute

# Matches the ops whose random numbers differ between XLA and TensorFlow's kernels, for the same
# seed. They run in TensorFlow's kernels, so that a training gives the same result with XLA.
_RANDOM_OPS = re.compile(
    r"Random|Multinomial|TruncatedNormal|^Rng|^Stateful(Uniform|StandardNormal)|Shuffle|"
    r"CandidateSampler|SampleDistorted"
)
# Ops that check or print a value. XLA would silently drop them, so they run in TensorFlow's
# kernels.
_DROPPED_OPS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2", "Print", "PrintV2"})
# Types of ops that compute nothing. If only ops of these types depend on an op that XLA cannot run,
# such as a print, the print and these ops run after the compiled part of the step.
_FORWARDING_OPS = frozenset({"NoOp", "Identity", "Const"})

Operations = dict[str, Any]


@dataclass(frozen=True)
class StepPartition:
    """The three parts of a training step, each a dict operation name → operation.

    Attributes:
      before: the ops that XLA cannot run and whose results `compiled` needs, such as those that
        read the next batch or draw random numbers; and all ops that these depend on.
      after: the other ops that XLA cannot run, such as a print of the loss, and all ops that depend
        on them.
      obstacle: an op in `before` that XLA cannot run and that depends on trainable variables, such
        as a layer of the model; None if there is no such op.
    """

    before: Operations
    compiled: Operations
    after: Operations
    obstacle: Any | None


def partition_step(
    step: Operations, library: Mapping[str, Any], trainable_handles: Iterable[str]
) -> StepPartition:
    """Divide a training step into the ops that XLA compiles and the ops before and after these.

    Args:
      library: the functions of the graph: name → FunctionDef.
    """
    consumers = _find_consumers(step)
    host = {name for name, operation in step.items() if not _can_compile(operation, library)}
    computing = {
        name
        for name, operation in step.items()
        if name not in host and operation.type not in _FORWARDING_OPS
    }
    producers = _invert(consumers)
    feeds_computation = _reach(computing, producers)
    after = _reach(host - feeds_computation, consumers)
    before = _reach(host - after, producers)
    handles = set(trainable_handles)
    readers = {
        name
        for name, operation in step.items()
        if any(tensor.op.name in handles for tensor in operation.inputs)
    }
    depends_on_weights = _reach(readers, consumers)
    obstacles = (
        operation
        for name, operation in step.items()
        if name in host and name not in after and name in depends_on_weights
    )
    # If several operations prevent the compilation, report the operation that was created first.
    obstacle = min(obstacles, key=_get_creation_number, default=None)

    def select(names: set[str]) -> Operations:
        return {name: operation for name, operation in step.items() if name in names}

    return StepPartition(
        before=select(before),
        compiled=select(set(step) - before - after),
        after=select(after),
        obstacle=obstacle,
    )


def _get_creation_number(operation: Any) -> int:
    return int(get_private_attribute(operation, "_id"))


def draws_random_numbers(operation: Any) -> bool:
    """Return whether an operation draws random numbers, by its type or its seed attributes."""
    attributes = operation.node_def.attr
    return bool(_RANDOM_OPS.search(operation.type)) or {"seed", "seed2"} <= set(attributes)


def _can_compile(operation: Any, library: Mapping[str, Any]) -> bool:
    """Return whether XLA computes the same as TensorFlow's kernels for an operation."""
    if get_private_attribute(operation, "_get_control_flow_context")() is not None:
        # This op is a part of a TensorFlow 1 while loop or condition. XLA compiles a function, and
        # a function can contain such a loop or condition only as a whole.
        return False
    if not all(
        _is_variable(tensor.op) for tensor in operation.inputs if tensor.dtype == tf.resource
    ):
        return False
    if draws_random_numbers(operation):
        return False
    return all(
        has_xla_kernel(node) and node.op not in _DROPPED_OPS and not _RANDOM_OPS.search(node.op)
        for node in op_defs.walk_calls([operation.node_def], library)
        if node.op not in library
    )


def _is_variable(operation: Any) -> bool:
    while operation.type == "Identity":
        operation = operation.inputs[0].op
    return bool(operation.type == "VarHandleOp")


def _find_consumers(step: Operations) -> dict[str, set[str]]:
    consumers: dict[str, set[str]] = defaultdict(set)
    for name, operation in step.items():
        inputs = (*(tensor.op for tensor in operation.inputs), *operation.control_inputs)
        for producer in inputs:
            if producer.name in step:
                consumers[producer.name].add(name)
    return consumers


def _invert(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    inverted: dict[str, set[str]] = defaultdict(set)
    for source, targets in edges.items():
        for target in targets:
            inverted[target].add(source)
    return inverted


def _reach(start: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    return find_reachable(start, lambda name: edges.get(name, ()))
