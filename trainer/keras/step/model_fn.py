"""The model_fn of a Keras model."""

import logging
from collections.abc import Callable, Mapping, Sequence
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
from trainer.keras.step.steps import ModelSteps
from trainer.model.feature_codec import FeatureCodec
from trainer.model.spec import ModeKeys, TPUEstimatorSpec

logger = logging.getLogger("tensorflow.trainer")


def build_model_fn(
    converted: ConvertedModel, class_weight: Mapping[int, float] | None, wire: FeatureCodec
) -> Callable[..., TPUEstimatorSpec]:
    """A model_fn that does what a Keras model does.

    Args:
      converted: the model.
      class_weight: class → how much its rows count in training; None for all alike.
      wire: how batches reach a TPU.
    """
    builds = {ModeKeys.TRAIN: _train, ModeKeys.EVAL: _evaluate, ModeKeys.PREDICT: _predict}

    def keras_model_fn(features: Any, labels: Any, mode: str, params: Any) -> TPUEstimatorSpec:
        adapter, model = converted.adapter, converted.model
        if mode == ModeKeys.TRAIN:
            converted.check_compiled()
        # The context is there in a run on a TPU alone.
        if "context" in params:
            features, labels = wire.decode(features, labels, mode)
        features, weights = split_sample_weights(features, converted.inputs)
        x = select_model_inputs(features, converted.inputs, converted.where)
        batch = labels_and_weights(labels)
        if weights is not None:
            batch = batch._replace(sample_weight=weights)
        converted.build_from(x)
        graph = _GraphVariables(converted, mode)
        steps = ModelSteps(adapter, model, graph.handles)
        return builds[mode](converted, steps, x, batch, class_weight)

    return keras_model_fn


def _train(
    converted: ConvertedModel,
    steps: ModelSteps,
    x: Any,
    batch: WeightedLabels,
    class_weight: Mapping[int, float] | None,
) -> TPUEstimatorSpec:
    if converted.names.metrics:
        _check_metric_names(converted, x, batch)
    loss = steps.train(x, batch, class_weight)
    with tf.control_dependencies([loss]):
        # Every other output of a step waits for what it does, so this is its end.
        train_op = tf.compat.v1.train.get_global_step().assign_add(1, read_value=False)
    return TPUEstimatorSpec(ModeKeys.TRAIN, loss=tf.reshape(loss, []), train_op=train_op)


def _evaluate(
    converted: ConvertedModel, steps: ModelSteps, x: Any, batch: WeightedLabels, _: Any
) -> TPUEstimatorSpec:
    loss, y_pred, masks = steps.evaluate(x, batch)
    parts = [batch.labels, y_pred, batch.sample_weight, masks]
    flat = tf.nest.flatten(parts)
    tensors = [each for each in flat if each is not None]

    def metric_fn(*given: Any) -> dict[str, Any]:
        left = iter(given)
        filled = [None if each is None else next(left) for each in flat]
        return _metrics(converted, *tf.nest.pack_sequence_as(parts, filled))

    return TPUEstimatorSpec(
        ModeKeys.EVAL, loss=tf.reshape(loss, []), eval_metrics=(metric_fn, tensors)
    )


def _metrics(
    converted: ConvertedModel, labels: Any, y_pred: Any, weights: Any, masks: Sequence[Any]
) -> dict[str, Any]:
    adapter, model = converted.adapter, converted.model
    steps = ModelSteps(adapter, model, _LocalVariables(converted, "metrics"))
    update = steps.update_metrics(labels, y_pred, weights, masks)
    results = steps.metric_results()
    with eager_mode():
        losses = adapter.loss_names(model)
    named = converted.names.rename_metrics(results, losses)
    return {name: (value, update) for name, value in named.items()}


def _check_metric_names(converted: ConvertedModel, x: Any, batch: WeightedLabels) -> None:
    """Has a wrong name found before a training, not after it.

    Metrics have names as soon as they have met a batch, which they do in a graph of their own.
    """
    with tf.Graph().as_default():
        x, batch = tf.nest.map_structure(
            lambda each: each if each is None else tf.compat.v1.placeholder(each.dtype, each.shape),
            (x, batch),
        )
        steps = ModelSteps(
            converted.adapter, converted.model, _GraphVariables(converted, ModeKeys.EVAL).handles
        )
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
        export_outputs=converted.names.export_outputs(predictions),
    )


class _GraphVariables:
    """The variables of the default graph that take the place of Keras's."""

    def __init__(self, converted: ConvertedModel, mode: str) -> None:
        adapter, model = converted.adapter, converted.model
        initial = converted.initial_values()
        weights = converted.variables()
        averages = variables.moving_averages(adapter, model, weights)
        made: dict[str, Any] = {}
        self.handles: dict[int, Any] = _LocalVariables(converted, "step")
        for each in weights:
            if each.is_slot and mode != ModeKeys.TRAIN:
                continue
            # What training has averaged is what it was for.
            stored = each if mode == ModeKeys.TRAIN else averages.get(each.name, each)
            if stored.name not in made:
                made[stored.name] = variables.create_graph_variable(
                    stored, initial.get(stored.name)
                )
            self.handles[id(each.variable.handle)] = made[stored.name]


class _LocalVariables(dict[int, Any]):
    """Variables that no checkpoint has, made in the default graph when they are asked for."""

    def __init__(self, converted: ConvertedModel, owner: str) -> None:
        super().__init__()
        self._converted, self._owner = converted, owner

    def __contains__(self, handle: object) -> bool:
        return super().__contains__(handle) or handle in self._eager()

    def __missing__(self, handle: int) -> Any:
        variable = self._eager()[handle]
        with eager_mode():
            initial = variable.numpy()
        self[handle] = variables.create_local_variable(
            f"keras/{self._owner}_{len(self)}", variable, initial
        )
        return self[handle]

    def _eager(self) -> dict[int, Any]:
        # Metrics make theirs when they meet their first batch, in the midst of a trace.
        adapter, model = self._converted.adapter, self._converted.model
        with eager_mode():
            adapter.reset_metrics(model)
            found = [*adapter.metric_variables(model), *adapter.local_variables()]
            return {id(each.handle): each for each in found}
