"""Creates the graph for training, evaluation or prediction, with a seed and a global step."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpuserve.lowering.rules.op_table import op_spec
from trainer import keras_internals
from trainer.config.run_config import RunConfig
from trainer.tensorflow_internals import (
    defined_function,
    eager_context,
    get_private_attribute,
    is_op_determinism_enabled,
)


class VariableValueGraph(tf.Graph):
    """A graph whose sessions fetch the value of a variable by the name of the variable.

    A program of TensorFlow 1 fetches "w:0" for the value of w. Of a resource variable, "w:0" is the
    handle, which no program can use.
    """

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Any:
        """Return the tensor or operation that an object or a name refers to."""
        element = super().as_graph_element(obj, allow_tensor, allow_operation)
        if not self.finalized or not tf.is_tensor(element) or element.op.type != "VarHandleOp":
            return element
        name = f"{element.op.name}/Read/ReadVariableOp"
        reads = (operation for operation in element.consumers() if operation.name == name)
        return next((read.outputs[0] for read in reads), element)


class SingleReplicaGraph(VariableValueGraph):
    """A graph that replaces each sum over replicas by an identity.

    tf.compat.v1.tpu's CrossShardOptimizer and cross_replica_sum create CrossReplicaSum ops, which
    have kernels on TPUs only. With one replica, the sum equals the input.
    """

    def __init__(self) -> None:
        super().__init__()
        graph = tf.Graph()
        get_private_attribute(graph, "_add_function")
        get_private_attribute(graph, "_create_op_internal")

    def _create_op_internal(
        self,
        op_type: str,
        inputs: Any,
        dtypes: Any = None,
        input_types: Any = None,
        name: str | None = None,
        attrs: Any = None,
        op_def: Any = None,
        compute_device: bool = True,
    ) -> Any:
        if op_spec(op_type).is_reduction:
            op_type, inputs, op_def = "Identity", list(inputs)[:1], None
            input_types = list(input_types)[:1] if input_types is not None else None
            attrs = {"T": attrs["T"]}
        return super()._create_op_internal(
            op_type, inputs, dtypes, input_types, name, attrs, op_def, compute_device
        )

    def _add_function(self, function: Any) -> None:
        definition = function.cached_definition
        if any(op_spec(node.op).is_reduction for node in definition.node_def):
            function = defined_function._from_definition(_replace_sums(definition))
        super()._add_function(function)


def _replace_sums(definition: Any) -> Any:
    copy = type(definition)()
    copy.CopyFrom(definition)
    for node in copy.node_def:
        if op_spec(node.op).is_reduction:
            node.op = "Identity"
            # Remove only the second input, the group assignment, because an Identity has one input.
            # The other inputs are control inputs, which stay.
            del node.input[1]
    return copy


def must_repeat_numbers() -> bool:
    """Return whether the program has set a seed, or asked TensorFlow for deterministic ops."""
    return (
        tf.compat.v1.get_default_graph().seed is not None
        or eager_context.global_seed() is not None
        or is_op_determinism_enabled()
    )


@contextmanager
def new_run_graph(
    config: RunConfig,
    *,
    has_single_replica: bool = False,
    use_resource: bool | None = True,
    device_fn: Callable[[Any], Any] | None = None,
) -> Iterator[Any]:
    """Create a new default graph with the run's seed and a global step; yield the global step.

    Variables of the graph are resource variables, because the training loop and a TPU computation
    cannot use reference variables.

    Args:
      device_fn: takes an operation and returns its device. It is called for all operations,
        including those of the global step. None leaves the placement to TensorFlow.
    """
    graph = SingleReplicaGraph() if has_single_replica else VariableValueGraph()
    with (
        graph.as_default(),
        graph.device(device_fn),
        _repeatable_layers(config.tf_random_seed),
    ):
        tf.compat.v1.set_random_seed(config.tf_random_seed)
        scope = tf.compat.v1.get_variable_scope()
        with (
            tf.compat.v1.variable_creator_scope(_create_variable),
            tf.compat.v1.variable_scope(scope, use_resource=use_resource),
        ):
            yield tf.compat.v1.train.create_global_step()


def _create_variable(next_creator: Callable[..., Any], **settings: Any) -> Any:
    """Let a resource variable without validate_shape take values of any shape, as a reference."""
    if settings.get("validate_shape") is False and settings.get("shape") is None:
        settings["shape"] = tf.TensorShape(None)
    return next_creator(**settings)


@contextmanager
def _repeatable_layers(seed: int | None) -> Iterator[None]:
    # Let legacy Keras draw from a random generator with the run's seed.
    if seed is None:
        yield
        return
    seeds = keras_internals.SEED_GENERATOR
    previous = getattr(seeds, "generator", None)
    seeds.generator = random.Random(seed)
    try:
        yield
    finally:
        seeds.generator = previous
