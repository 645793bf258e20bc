"""Builds the training, evaluation and prediction steps of a Keras model in the default graph."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.distribution.cross_shard import cross_replica_sum
from trainer.keras.model import converted_model, tracing
from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.tracing import eager_mode
from trainer.keras.model.unsupported_options import unsupported_option_error
from trainer.keras.step.features import WeightedLabels, apply_class_weights
from trainer.keras.step.outputs import OutputCodec
from trainer.model import patching
from trainer.tensorflow_internals import get_private_attribute, tpu_function


@contextmanager
def synchronize_moments(replicas: int) -> Iterator[None]:
    """Return a context in which batch normalization can use the batches of all replicas.

    A layer with synchronized=True calls the method all_reduce of tf.distribute's replica context.

    Raises:
      InvalidSetting: in the context, a layer calls all_reduce with a reduce_op other than SUM and
        MEAN.
    """
    if replicas == 1:
        yield
        return

    def all_reduce(reduce_op: Any, value: Any, options: Any = None) -> Any:
        # TensorFlow's method takes a tf.distribute.ReduceOp, or its name in upper or lower case.
        name = str(getattr(reduce_op, "value", reduce_op)).upper()
        if name not in ("SUM", "MEAN"):
            raise InvalidSetting(
                f"all_reduce of a replica context has reduce_op={reduce_op!r}. Give ReduceOp.SUM "
                f"or ReduceOp.MEAN."
            )
        sums = tf.nest.map_structure(cross_replica_sum, value)
        return sums if name == "SUM" else tf.nest.map_structure(lambda x: x / replicas, sums)

    with patching.patched_attributes(
        tf.distribute.get_replica_context(), {"all_reduce": all_reduce}
    ):
        yield


def copy_table(model: Any, handle: Any) -> Any:
    """Return the handle of a new table in the default graph; None if the model lacks the table."""
    kinds = (tf.lookup.StaticHashTable, tf.lookup.experimental.MutableHashTable)
    parts = tf.train.TrackableView(model).descendants()
    tables = [part for part in parts if isinstance(part, kinds) and part.resource_handle is handle]
    if not tables:
        return None
    keys, values = _export(tables[0])
    # In the graph of a loop's body, create the table outside of the loop.
    with tf.init_scope():
        contents = tf.lookup.KeyValueTensorInitializer(keys, values)
        default = tf.zeros([], contents.value_dtype)
        return tf.lookup.StaticHashTable(contents, default).resource_handle


def _export(table: Any) -> tuple[Any, Any]:
    """Return the keys and the values of a table, as arrays."""
    # Use a graph that is discarded, because a table adds its initializer to the graph's collection.
    with tf.Graph().as_default(), eager_mode():
        if isinstance(table, tf.lookup.StaticHashTable):
            # Initialize the table: a layer that created it while it was traced has not done so.
            get_private_attribute(table, "_initialize")()
            keys, values = tf.raw_ops.LookupTableExportV2(
                table_handle=table.resource_handle,
                Tkeys=table.key_dtype,
                Tvalues=table.value_dtype,
            )
        else:
            keys, values = table.export()
        return keys.numpy(), values.numpy()


_NO_LOSS = "A loss needs labels."
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")


class ModelSteps:
    """Builds the steps of one Keras model in the default graph.

    Keras's own code is traced, and the traced graph is imported into the default graph.

    Args:
      model: a Keras model that is built; for training and evaluation also compiled.
      graph_variables: id of the handle of a Keras variable → the variable of the default
        graph that replaces it.
    """

    def __init__(
        self, adapter: KerasAdapter, model: Any, graph_variables: Mapping[int, Any]
    ) -> None:
        self._adapter, self._model, self._graph_variables = adapter, model, graph_variables

    def train(self, x: Any, batch: WeightedLabels, class_weight: Mapping[int, float] | None) -> Any:
        """Build the ops of a training step in the default graph.

        Returns:
          The loss of the batch, a scalar tensor that depends on all updates of variables.

        Raises:
          InvalidSetting: the batch has no labels, or the model cannot process the batch.
        """
        adapter, model = self._adapter, self._model
        replicas = _num_replicas()

        def step(x: Any, labels: Any, weights: Any) -> Any:
            if class_weight:
                weights = apply_class_weights(labels, weights, class_weight)
            with adapter.per_replica_seeds(model), tf.GradientTape() as tape:
                with synchronize_moments(replicas):
                    y_pred = adapter.call(model, x, training=True)
                loss = adapter.compute_loss(model, x, labels, y_pred, weights, replicas)
                if loss is None:
                    raise ValueError(_NO_LOSS)
                scaled = adapter.scale_loss(model, loss)
            gradients = tape.gradient(scaled, adapter.trainable_variables(model))
            adapter.apply_gradients(
                model, [_average_gradient(gradient, replicas) for gradient in gradients]
            )
            self._average_state(replicas)
            return loss

        return self._trace_into_graph(step, _step_arguments(x, batch), "train_step")

    def evaluate(self, x: Any, batch: WeightedLabels, codec: OutputCodec) -> tuple[Any, Any]:
        """Build the ops of an evaluation step in the default graph.

        Raises:
          InvalidSetting: the batch has no labels, or the model cannot process the batch.
        """
        adapter, model = self._adapter, self._model

        def step(x: Any, labels: Any, weights: Any) -> Any:
            with adapter.per_replica_seeds(model):
                y_pred = adapter.call(model, x, training=False)
                loss = adapter.compute_loss(model, x, labels, y_pred, weights, _num_replicas())
            if loss is None:
                raise ValueError(_NO_LOSS)
            return loss, codec.encode(y_pred)

        results: tuple[Any, Any] = self._trace_into_graph(
            step, _step_arguments(x, batch), "test_step"
        )
        return results

    def predict(self, x: Any) -> Any:
        """Build the ops of a prediction step in the default graph.

        Raises:
          InvalidSetting: the model cannot process the batch. Or the step uses a lookup table, or a
            Keras variable that has no replacement in the default graph.
        """

        def step(x: Any) -> Any:
            with self._adapter.per_replica_seeds(self._model):
                return self._adapter.call(self._model, x, training=False)

        return self._trace_into_graph(step, {"features": x}, "predict_step")

    def update_metrics(self, labels: Any, outputs: Any, weights: Any, codec: OutputCodec) -> Any:
        """Build the op that updates the metrics with a batch."""

        def step(labels: Any, outputs: Any, weights: Any) -> Any:
            self._adapter.update_metrics(self._model, labels, codec.decode(outputs), weights)
            return tf.constant(0)

        parts = {"labels": labels, "outputs": outputs, "weights": weights}
        return self._trace_into_graph(step, parts, "update_metrics").op

    def metric_results(self) -> dict[str, Any]:
        """Build the ops that compute the metrics: metric name → scalar tensor with the value."""
        results: dict[str, Any] = self._trace_into_graph(
            lambda: self._adapter.metric_results(self._model), {}, "metric_results"
        )
        return results

    def _average_state(self, replicas: int) -> None:
        """Make the traced step assign means over the replicas to non-trainable float variables."""
        if replicas == 1:
            return
        graph = tf.compat.v1.get_default_graph()
        captured = {id(outer): inner for outer, inner in graph.captures}
        for _, variable, is_trained in self._adapter.model_variables(self._model):
            handle = captured.get(id(variable.handle))
            if is_trained or handle is None or not variable.dtype.is_floating:
                continue
            for operation in handle.consumers():
                if operation.type in _ASSIGNMENTS:
                    value = operation.inputs[1]
                    mean = cross_replica_sum(value / replicas)
                    get_private_attribute(operation, "_update_input")(1, mean)

    def _trace_into_graph(self, step: Callable[..., Any], parts: dict[str, Any], name: str) -> Any:
        flat = tf.nest.flatten(parts, expand_composites=True)
        tensors = [tensor for tensor in flat if tensor is not None]
        results: list[Any] = []

        def run_on_tensors(*arguments: Any) -> list[Any]:
            remaining = iter(arguments)
            filled = [None if tensor is None else next(remaining) for tensor in flat]
            packed = tf.nest.pack_sequence_as(parts, filled, expand_composites=True)
            result = step(*packed.values())
            results.append(result)
            flat_result = tf.nest.flatten(result, expand_composites=True)
            return [tf.convert_to_tensor(value) for value in flat_result if value is not None]

        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        try:
            func_graph = tracing.trace_function(run_on_tensors, specs, for_xla=tracing.is_for_xla())
        except converted_model.BATCH_ERRORS as error:
            raise converted_model.explain_batch_error(error, self._label, parts) from error
        replace_handle = self._handle_replacer(func_graph)
        outputs = iter(
            tracing.inline_traced_graph(func_graph, tensors, replace_handle, f"keras/{name}")
        )
        flat_result = tf.nest.flatten(results[-1], expand_composites=True)
        return tf.nest.pack_sequence_as(
            results[-1],
            [None if value is None else next(outputs) for value in flat_result],
            expand_composites=True,
        )

    @property
    def _label(self) -> str:
        """Return a description of the model for messages, such as "tf_keras model digits"."""
        return f"{self._adapter.name} model {self._model.name}"

    def _handle_replacer(self, func_graph: Any) -> Callable[[Any], Any]:
        """Return a function that replaces the handles of Keras variables in a traced step."""

        def replace_handle(handle: Any) -> Any:
            if id(handle) in self._graph_variables:
                return self._graph_variables[id(handle)].handle
            if (
                tf.is_symbolic_tensor(handle)
                or get_private_attribute(handle, "_handle_data") is None
            ):
                table = copy_table(self._model, handle)
                if table is None or tracing.is_for_xla():
                    raise unsupported_option_error("lookup table", self._label)
                return table
            names = [
                variable.name for variable in func_graph.variables if variable.handle is handle
            ]
            owner = f"{self._label} ({', '.join(names) or 'unnamed'})"
            raise unsupported_option_error("untracked variable", owner)

        return replace_handle


def _step_arguments(x: Any, batch: WeightedLabels) -> dict[str, Any]:
    return {"features": x, "labels": batch.labels, "weights": batch.sample_weight}


def _num_replicas() -> int:
    """Return the number of replicas for which the default graph is built; 1 without a TPU."""
    return tpu_function.get_tpu_context().number_of_shards or 1


def _average_gradient(gradient: Any, replicas: int) -> Any:
    """Return a gradient's mean over the replicas; without XLA, return the gradient unchanged."""
    if gradient is None or not tracing.is_for_xla():
        return gradient
    dense = tf.convert_to_tensor(gradient)
    return dense if replicas == 1 else cross_replica_sum(dense / replicas)
