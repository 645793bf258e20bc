"""Many training steps inside one `session.run`.

The step that model_fn built stays in the graph, where hooks and summaries can fetch every tensor
of it, and runs last in each loop. The steps before it run in a while loop over a copy of the
same nodes. So one call costs the graph's overhead once, and model_fn is called once.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.graph import reachability
from trainer.execution.iterations_per_loop import UNBOUNDED
from trainer.tensorflow_internals import control_flow_util, while_v2

logger = logging.getLogger("tensorflow.trainer")

_SEED_DISTANCE = 0x5EED


def _nobody_listens(iterations: int) -> None:
    pass


@dataclass(frozen=True)
class TrainLoop:
    """A step, and the op that makes several of it.

    Attributes:
      iterations: int32 placeholder: how many steps the next run makes; 1 if it is not fed.
      train_op: makes them.
      loss: of the last of them.
      step: the global step after the last of them.
      max_iterations: the most steps one run can make.
      announce: to be called with the number of steps that the run which begins will make.
    """

    iterations: Any
    train_op: Any
    loss: Any
    step: Any
    max_iterations: int
    before_run: Callable[[int], None] = _nobody_listens


def build_train_loop(
    train_op: Any, loss: Any, global_step: Any, iterations_per_loop: int
) -> TrainLoop:
    """The loop around a step of the default graph.

    A step that cannot be copied, because it is fed or keeps its state outside of resources, is
    run once a `session.run` instead; a log line says so.

    Args:
      train_op: the op or tensor that makes one step.
      loss: the step's loss, a scalar.
      global_step: the variable that counts steps.
      iterations_per_loop: the most steps that one run will be asked for.
    """
    iterations = tf.compat.v1.placeholder_with_default(1, [], name="iterations")
    train_op = getattr(train_op, "op", train_op)
    graph = tf.compat.v1.get_default_graph()
    with tf.control_dependencies([train_op]):
        step_after = tf.identity(global_step, name="global_step_after")
    step = reachability.reachable_ops([train_op, loss.op])
    obstacle = why_not_unrollable(step)
    if obstacle is not None and iterations_per_loop > 1:
        several = "several" if iterations_per_loop == UNBOUNDED else iterations_per_loop
        logger.warning("one step a session.run, not %s: %s", several, obstacle)
    if obstacle is not None or iterations_per_loop == 1:
        return TrainLoop(iterations, train_op, loss, step_after, max_iterations=1)
    others = [each for each in graph.get_operations() if each.name not in step]
    earlier_steps = run_unrolled(step, train_op, iterations - 1)
    for operation in (*_roots(step), *_reads(others)):
        operation._add_control_input(earlier_steps)
    return TrainLoop(iterations, train_op, loss, step_after, iterations_per_loop)


def why_not_unrollable(step: dict[str, Any]) -> str | None:
    """Why copies of these operations cannot run in the place of several runs; None if they can."""
    for operation in step.values():
        for tensor in (*operation.inputs, *operation.outputs):
            if tensor.op.type == "Placeholder":
                return f"placeholder {tensor.op.name!r} is fed by each session.run"
            if tensor.dtype._is_ref_dtype:
                return (
                    f"{operation.type} {operation.name!r} works on a reference; use resource "
                    f"variables (use_resource=True)"
                )
    return None


def run_unrolled(step: dict[str, Any], last: Any, count: Any) -> Any:
    """The op that runs a step `count` times, each time in a copy of it.

    Args:
      step: the operations of one step, by name; see `tpuserve.graph.reachability`.
      last: the one of them that a step is done with.
      count: how often, a scalar.
    """
    handles = _outside_inputs(step)
    definition = _definition(step)

    def body(done: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        (copy,) = tf.graph_util.import_graph_def(
            definition,
            input_map={handle.name: graph.capture(handle) for handle in handles},
            return_elements=[last.name],
            name="step",
        )
        with tf.control_dependencies([copy]):
            return done + 1

    done = while_v2.while_loop(
        lambda done: done < count, body, [tf.constant(0)], name="earlier_steps"
    )
    return tf.group(done)


def _outside_inputs(step: dict[str, Any]) -> list[Any]:
    tensors = (each for operation in step.values() for each in operation.inputs)
    return list({each.name: each for each in tensors if each.op.name not in step}.values())


def _definition(step: dict[str, Any]) -> Any:
    whole = tf.compat.v1.get_default_graph().as_graph_def()
    definition = tf.compat.v1.GraphDef(versions=whole.versions, library=whole.library)
    for node in whole.node:
        if node.name not in step:
            continue
        copy = definition.node.add()
        copy.CopyFrom(node)
        # Variables stay outside of the loop, so there is nothing there to be colocated with.
        copy.attr.pop("_class", None)
        _reseed(copy)
        inputs = [each for each in node.input if _is_data_or_in(each, step)]
        del copy.input[:]
        copy.input.extend(inputs)
    return definition


def _reseed(node: Any) -> None:
    # An op's generator starts from its seeds: with the same ones, the copy and the original would
    # draw the same numbers, in steps that should have nothing to do with each other.
    seeds = [node.attr[each].i for each in ("seed", "seed2") if each in node.attr]
    if len(seeds) == 2 and any(seeds):
        node.attr["seed2"].i = (seeds[1] + _SEED_DISTANCE) % 2**31


def _is_data_or_in(reference: str, step: dict[str, Any]) -> bool:
    return not reference.startswith("^") or reference[1:] in step


def _roots(step: dict[str, Any]) -> list[Any]:
    """The operations that all else of the step waits for.

    A constant need not wait, and would no longer be folded if it did.
    """
    return [
        operation
        for operation in step.values()
        if operation.type != "Const"
        and (
            all(each.op.name not in step or each.op.type == "Const" for each in operation.inputs)
            # A call or a loop, once TensorFlow has inlined it, reads a variable before its other
            # inputs are there.
            or any(each.dtype == tf.resource for each in operation.inputs)
        )
        and not _is_inside_while(operation)
    ]


def _reads(operations: Iterable[Any]) -> list[Any]:
    """Those operations that read a resource, as a summary of a variable does.

    They must not see a variable as it was before the loop. Where a run is not told how many
    steps to make, as when variables are initialised, the loop they wait for makes none.
    """
    return [
        operation
        for operation in operations
        if operation.outputs
        and any(each.dtype == tf.resource for each in operation.inputs)
        and not _is_inside_while(operation)
    ]


def _is_inside_while(operation: Any) -> bool:
    # Within a while loop of version 1 an edge from outside is not allowed, and not needed: what
    # is inside waits for the Enter operations, which are outside.
    context = control_flow_util.GetContainingWhileContext(operation._get_control_flow_context())
    if context is not None and operation.type == "Enter":
        context = control_flow_util.GetContainingWhileContext(context.outer_context)
    return context is not None
