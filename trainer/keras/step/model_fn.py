"""Builds the model_fn with which a TPUEstimator runs a Keras model."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainer.keras.model import variables
from trainer.keras.model.converted_model import ConvertedModel
from trainer.keras.model.tracing import eager_mode
from trainer.keras.step.features import (
    WeightedLabels,
    labels_and_weights,
    select_model_inputs,
    split_sample_weights,
)
from trainer.keras.step.outputs import OutputCodec
from trainer.keras.step.steps import ModelSteps
from trainer.model.feature_codec import FeatureCodec
from trainer.model.spec import ModeKeys, TPUEstimatorSpec


def build_model_fn(
    converted: ConvertedModel, class_weight: Mapping[int, float] | None, codec: FeatureCodec
) -> Callable[..., TPUEstimatorSpec]:
    """Build a model_fn that runs a Keras model.

    Args:
      class_weight: class → weight of the examples of this class in training; None for equal
        weights.
    """
    builders = {ModeKeys.TRAIN: _train, ModeKeys.EVAL: _evaluate, ModeKeys.PREDICT: _predict}

    def keras_model_fn(features: Any, labels: Any, mode: str, params: Any) -> TPUEstimatorSpec:
        if mode == ModeKeys.TRAIN:
            converted.check_same_optimizer()
        # Decode the features if they were encoded for the infeed, as in a run on a TPU. Only in
        # such a run, TPUEstimator adds "context" to the params.
        if "context" in params:
            features, labels = codec.decode(features, labels, mode)
        features, weights = split_sample_weights(features, converted.input_names)
        x = select_model_inputs(features, converted.input_names, converted.label)
        batch = labels_and_weights(labels)
        if weights is not None:
            batch = WeightedLabels(batch.labels, weights)
        converted.build_from(x)
        graph_variables = _create_graph_variables(converted, mode)
        steps = ModelSteps(converted.adapter, converted.model, graph_variables)
        return builders[mode](converted, steps, x, batch, class_weight)

    return keras_model_fn


def _train(
    converted: ConvertedModel,
    steps: ModelSteps,
    x: Any,
    batch: WeightedLabels,
    class_weight: Mapping[int, float] | None,
) -> TPUEstimatorSpec:
    if converted.name_maps.metrics:
        _check_metric_names(converted, x, batch)
    loss = steps.train(x, batch, class_weight)
    with tf.control_dependencies([loss]):
        # Let the train_op, which increments the global step, wait for the loss. The loss depends on
        # all updates of variables, so the updates are complete when the train_op has run.
        train_op = tf.compat.v1.train.get_global_step().assign_add(1, read_value=False)
    return TPUEstimatorSpec(ModeKeys.TRAIN, loss=tf.reshape(loss, []), train_op=train_op)


def _evaluate(
    converted: ConvertedModel, steps: ModelSteps, x: Any, batch: WeightedLabels, _: Any
) -> TPUEstimatorSpec:
    """Build the TPUEstimatorSpec for evaluation; the host updates the metrics."""
    codec = OutputCodec(converted.adapter)
    loss, outputs = steps.evaluate(x, batch, codec)
    parts = [batch.labels, outputs, batch.sample_weight]
    # Pass only tensors to metric_fn, because None, for example for absent weights, cannot be sent
    # to the host. metric_fn inserts the Nones again.
    flat = tf.nest.flatten(parts)
    tensors = [tensor for tensor in flat if tensor is not None]

    def metric_fn(*arguments: Any) -> dict[str, Any]:
        remaining = iter(arguments)
        filled = [None if tensor is None else next(remaining) for tensor in flat]
        return _metrics(converted, codec, *tf.nest.pack_sequence_as(parts, filled))

    return TPUEstimatorSpec(
        ModeKeys.EVAL, loss=tf.reshape(loss, []), eval_metrics=(metric_fn, tensors)
    )


def _metrics(
    converted: ConvertedModel, codec: OutputCodec, labels: Any, outputs: Any, weights: Any
) -> dict[str, Any]:
    """Build, in the default graph, the ops that update the metrics with a batch and read them."""
    adapter, model = converted.adapter, converted.model
    steps = ModelSteps(adapter, model, _LocalVariables(converted, "metrics"))
    update_op = steps.update_metrics(labels, outputs, weights, codec)
    results = steps.metric_results()
    with eager_mode():
        losses = adapter.loss_names(model)
    renamed = converted.name_maps.rename_metrics(results, losses)
    return {name: (value, update_op) for name, value in renamed.items()}


def _check_metric_names(converted: ConvertedModel, x: Any, batch: WeightedLabels) -> None:
    """Check metric_names_map before the training, so that an invalid map is reported early."""
    with tf.Graph().as_default():
        x, batch = tf.nest.map_structure(
            lambda tensor: (
                None if tensor is None else tf.compat.v1.placeholder(tensor.dtype, tensor.shape)
            ),
            (x, batch),
        )
        graph_variables = _create_graph_variables(converted, ModeKeys.EVAL)
        steps = ModelSteps(converted.adapter, converted.model, graph_variables)
        spec = _evaluate(converted, steps, x, batch, None)
        assert spec.eval_metrics is not None
        metric_fn, tensors = spec.eval_metrics
        metric_fn(*tensors)


def _predict(
    converted: ConvertedModel, steps: ModelSteps, x: Any, batch: WeightedLabels, _: Any
) -> TPUEstimatorSpec:
    predictions = converted.named_outputs(steps.predict(x))
    return TPUEstimatorSpec(
        ModeKeys.PREDICT,
        predictions=predictions,
        export_outputs=converted.name_maps.export_outputs(predictions),
    )


def _create_graph_variables(converted: ConvertedModel, mode: str) -> "_LocalVariables":
    """Create variables in the default graph that replace the variables of the Keras model."""
    is_training = mode == ModeKeys.TRAIN
    initial_values = converted.initial_values()
    all_variables = converted.variables()
    averages = variables.moving_averages(converted.adapter, converted.model, all_variables)
    created: dict[str, Any] = {}
    by_handle = _LocalVariables(converted, "step")
    for variable in all_variables:
        if variable.is_slot and not is_training:
            continue
        stored = variable if is_training else averages.get(variable.name, variable)
        if stored.name not in created:
            created[stored.name] = variables.create_graph_variable(
                stored, initial_values.get(stored.name)
            )
        by_handle[id(variable.keras_variable.handle)] = created[stored.name]
    return by_handle


class _LocalVariables(dict[int, Any]):
    """Maps handles of Keras variables to variables of the default graph that replace them."""

    def __init__(self, converted: ConvertedModel, scope: str) -> None:
        super().__init__()
        self._converted, self._scope = converted, scope
        self._keras_variables: dict[int, Any] = {}

    def __contains__(self, handle: object) -> bool:
        return super().__contains__(handle) or handle in self._collect_keras_variables(handle)

    def __missing__(self, handle: int) -> Any:
        """Create the local variable for a handle, with the current value of the Keras variable."""
        keras_variable = self._collect_keras_variables(handle)[handle]
        with eager_mode():
            initial = keras_variable.numpy()
        self[handle] = variables.create_local_variable(
            f"keras/{self._scope}_{len(self)}", keras_variable, initial
        )
        return self[handle]

    def _collect_keras_variables(self, handle: object) -> dict[int, Any]:
        if handle not in self._keras_variables:
            adapter, model = self._converted.adapter, self._converted.model
            with eager_mode():
                adapter.reset_metrics(model)
                keras_variables = [*adapter.metric_variables(model), *adapter.local_variables()]
                self._keras_variables = {
                    id(variable.handle): variable for variable in keras_variables
                }
        return self._keras_variables
