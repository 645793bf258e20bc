"""What a Keras model does with one batch in each mode, traced and put into the default graph."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer.distribution.cross_shard import cross_replica_sum
from trainer.keras.model import tracing
from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.unsupported_options import unsupported_option_error
from trainer.keras.step import step_errors, synchronized_batch_norm
from trainer.keras.step.features import WeightedLabels, apply_class_weights
from trainer.tensorflow_internals import tpu_function

_NO_LOSS = "A loss needs labels."
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")


class ModelSteps:
    """The functions of a model, for batches of the default graph."""

    def __init__(self, adapter: KerasAdapter, model: Any, handles: Mapping[int, Any]) -> None:
        """Builds nothing yet.

        Args:
          adapter: of the model.
          model: built, and compiled where it is to be trained or evaluated.
          handles: id of the handle of a variable of Keras → the variable of the default graph
            that takes its place.
        """
        self._adapter, self._model, self._handles = adapter, model, handles

    def train(self, x: Any, batch: WeightedLabels, class_weight: Mapping[int, float] | None) -> Any:
        """The loss of a batch, once the optimizer has made its step."""
        adapter, model = self._adapter, self._model
        replicas = _replicas()

        def step(x: Any, labels: Any, weights: Any) -> Any:
            if class_weight:
                weights = apply_class_weights(labels, weights, class_weight)
            with adapter.per_replica_seeds(model), tf.GradientTape() as tape:
                with synchronized_batch_norm.synchronize_moments(replicas):
                    y_pred = adapter.call(model, x, training=True)
                loss = adapter.compute_loss(model, x, labels, y_pred, weights, replicas)
                if loss is None:
                    raise ValueError(_NO_LOSS)
                scaled = adapter.scale_loss(model, loss)
            gradients = tape.gradient(scaled, adapter.trainable_variables(model))
            adapter.apply_gradients(
                model, [_average_gradient(each, replicas) for each in gradients]
            )
            self._average_state(replicas)
            return loss

        return self._trace_into_graph(step, _step_arguments(x, batch), "train_step")

    def evaluate(self, x: Any, batch: WeightedLabels) -> tuple[Any, Any, list[Any]]:
        """The loss of a batch, what the model returns, and the masks of that."""
        adapter, model = self._adapter, self._model

        def step(x: Any, labels: Any, weights: Any) -> Any:
            with adapter.per_replica_seeds(model):
                y_pred = adapter.call(model, x, training=False)
                loss = adapter.compute_loss(model, x, labels, y_pred, weights, _replicas())
            if loss is None:
                raise ValueError(_NO_LOSS)
            return loss, y_pred, _masks(adapter, y_pred)

        found: tuple[Any, Any, list[Any]] = self._trace_into_graph(
            step, _step_arguments(x, batch), "test_step"
        )
        return found

    def predict(self, x: Any) -> Any:
        """What the model returns."""

        def step(x: Any) -> Any:
            with self._adapter.per_replica_seeds(self._model):
                return self._adapter.call(self._model, x, training=False)

        return self._trace_into_graph(step, {"features": x}, "predict_step")

    def update_metrics(self, labels: Any, y_pred: Any, weights: Any, masks: Sequence[Any]) -> Any:
        """The op that has the metrics take a batch into account."""

        def step(labels: Any, y_pred: Any, weights: Any, masks: Any) -> Any:
            for each, mask in zip(tf.nest.flatten(y_pred), masks, strict=True):
                if mask is not None:
                    self._adapter.set_mask(each, mask)
            self._adapter.update_metrics(self._model, labels, y_pred, weights)
            return tf.constant(0)

        parts = {"labels": labels, "outputs": y_pred, "weights": weights, "masks": list(masks)}
        return self._trace_into_graph(step, parts, "update_metrics").op

    def metric_results(self) -> dict[str, Any]:
        """Name → value of a metric."""
        found: dict[str, Any] = self._trace_into_graph(
            lambda: self._adapter.metric_results(self._model), {}, "metric_results"
        )
        return found

    def _average_state(self, replicas: int) -> None:
        """Makes what a step has found beside the weights, as moving averages, that of all."""
        if replicas == 1:
            return
        graph = tf.compat.v1.get_default_graph()
        inner = {id(outer): one for outer, one in graph.captures}
        for _, variable, is_trained in self._adapter.model_variables(self._model):
            handle = inner.get(id(variable.handle))
            if is_trained or handle is None or not variable.dtype.is_floating:
                continue
            for each in handle.consumers():
                if each.type in _ASSIGNMENTS:
                    # Before it is assigned: what replica is read from afterwards is not said.
                    own = each.inputs[1]
                    each._update_input(1, cross_replica_sum(own / replicas))

    def _trace_into_graph(self, step: Callable[..., Any], parts: dict[str, Any], name: str) -> Any:
        """What a step returns for tensors of the default graph, any of which may be None."""
        flat = tf.nest.flatten(parts, expand_composites=True)
        tensors = [each for each in flat if each is not None]
        returned: list[Any] = []

        def on_tensors(*given: Any) -> list[Any]:
            left = iter(given)
            filled = [None if each is None else next(left) for each in flat]
            packed = tf.nest.pack_sequence_as(parts, filled, expand_composites=True)
            result = step(*packed.values())
            returned.append(result)
            made = tf.nest.flatten(result, expand_composites=True)
            return [tf.convert_to_tensor(each) for each in made if each is not None]

        specs = [tf.TensorSpec(each.shape, each.dtype) for each in tensors]
        try:
            traced = tracing.trace_function(on_tensors, specs, for_xla=tracing.is_for_xla())
        except step_errors.STEP_ERRORS as error:
            raise step_errors.explain_step_error(error, self._where, parts) from error
        outputs = iter(
            tracing.inline_traced_graph(
                traced, tensors, self._handle_replacer(traced), f"keras/{name}"
            )
        )
        flat_result = tf.nest.flatten(returned[-1], expand_composites=True)
        return tf.nest.pack_sequence_as(
            returned[-1],
            [None if each is None else next(outputs) for each in flat_result],
            expand_composites=True,
        )

    @property
    def _where(self) -> str:
        return f"{self._adapter.name} model {self._model.name}"

    def _handle_replacer(self, traced: Any) -> Callable[[Any], Any]:
        """Gives the handle to take in the place of one that a traced function has captured."""

        def handle_of(handle: Any) -> Any:
            if id(handle) in self._handles:
                return self._handles[id(handle)].handle
            names = [each.name for each in traced.variables if each.handle is handle]
            where = self._where
            if getattr(handle, "_handle_data", None) is None:
                raise unsupported_option_error("lookup table", where)
            raise unsupported_option_error(
                "untracked variable", f"{where} ({', '.join(names) or 'unnamed'})"
            )

        return handle_of


def _step_arguments(x: Any, batch: WeightedLabels) -> dict[str, Any]:
    return {"features": x, "labels": batch.labels, "weights": batch.sample_weight}


def _replicas() -> int:
    return tpu_function.get_tpu_context().number_of_shards or 1


def _average_gradient(gradient: Any, replicas: int) -> Any:
    if gradient is None or not tracing.is_for_xla():
        return gradient
    # On one core as on many; and XLA compiles few of the ops that apply sparse gradients.
    dense = tf.convert_to_tensor(gradient)
    return dense if replicas == 1 else cross_replica_sum(dense / replicas)


def _masks(adapter: KerasAdapter, outputs: Any) -> list[Any]:
    return [adapter.get_mask(each) for each in tf.nest.flatten(outputs)]
