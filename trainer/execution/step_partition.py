"""Division of a training step into the ops that XLA compiles, and those before and after them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.ir import op_defs
from tpuserve.stablehlo.xla_kernels import has_xla_kernel

# Ops that draw other random numbers in XLA than in TensorFlow's kernels, for the same seeds.
_RANDOM_OPS = re.compile(
    r"Random|Multinomial|TruncatedNormal|^Rng|^Stateful(Uniform|StandardNormal)|Shuffle|"
    r"CandidateSampler|SampleDistorted"
)
# Ops that check or print a value. XLA would silently drop them, so they run in TensorFlow's
# kernels.
_DROPPED_OPS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2", "Print", "PrintV2"})
# Ops that take no time. If only such ops need an op that XLA cannot run, that op may run after the
# compiled part.
_FORWARDING_OPS = frozenset({"NoOp", "Identity", "Const"})

Operations = dict[str, Any]


@dataclass(frozen=True)
class StepPartition:
    """The parts of a training step, each a dict operation name → operation.

    Attributes:
      before: the ops whose results the compiled part needs and that XLA does not run, such as the
        next batch or random numbers, and everything that they depend on.
      compiled: the ops that XLA compiles into one computation.
      after: the ops that the other parts do not depend on, such as a print of the loss.
      obstacle: an op in `before` that depends on trainable variables, such as a layer that XLA
        cannot run; None if there is none. With an obstacle the step should not be compiled: the
        parts are valid, but `before` contains a part of the model.
    """

    before: Operations
    compiled: Operations
    after: Operations
    obstacle: Any | None


def partition_step(
    step: Operations, library: Mapping[str, Any], trainable_handles: Iterable[str]
) -> StepPartition:
    """Divide a training step.

    Args:
      step: the operations of one step, by name.
      library: the functions of the graph: name → FunctionDef.
      trainable_handles: the names of the ops that return the handles of trainable variables.
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
    # Report the operation that was created first; `_id` counts the operations of a graph.
    obstacle = min(obstacles, key=lambda operation: operation._id, default=None)

    def select(names: set[str]) -> Operations:
        return {name: operation for name, operation in step.items() if name in names}

    return StepPartition(
        before=select(before),
        compiled=select(set(step) - before - after),
        after=select(after),
        obstacle=obstacle,
    )


def draws_random_numbers(operation: Any) -> bool:
    """Return whether an operation is one that draws random numbers."""
    attributes = operation.node_def.attr
    return bool(_RANDOM_OPS.search(operation.type)) or {"seed", "seed2"} <= set(attributes)


def _can_compile(operation: Any, library: Mapping[str, Any]) -> bool:
    """Return whether XLA computes the same as TensorFlow's kernels for an operation."""
    if operation._get_control_flow_context() is not None:
        # This op is a part of a TensorFlow 1 while loop or condition. A function, which XLA needs,
        # can contain a loop or condition only as a whole.
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
    """Return operation name → the operations of the step that directly wait for the operation."""
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
    """Return the names in `start`, and all names that can be reached from them along edges."""
    return find_reachable(start, lambda name: edges.get(name, ()))
