"""The adapter through which trainer.keras uses models of tf_keras, which is Keras 2."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from trainer.keras import tf_optimizer
from trainer.keras.model import options
from trainer.keras.model.sum_losses import make_sum_scaler
from trainer.keras_internals import (
    LossesContainer,
    attach_to_tensor,
    find_private_attribute,
    get_private_attribute,
    set_private_attribute,
)


class _UnusedMetric:
    """Replaces the metric that averages the total loss, and does nothing."""

    def update_state(self, *arguments: Any, **named: Any) -> None:
        """Ignore the loss of a batch."""


class _LossesContainerWithoutMetrics(LossesContainer):
    """A LossesContainer without the metrics that report the loss of each output."""

    def _create_metrics(self) -> None:
        """Store None in place of the metrics of each output; LossesContainer calls this method."""
        self._per_output_metrics = [None] * len(self._losses)


def without_loss_metrics(compiled: Any, output_names: Any, replicas: int) -> Any:
    """Return a copy of compiled losses that updates no metrics, for use in an estimator's step.

    Args:
      replicas: the number of replicas. A loss that is a sum over examples is multiplied by this
        number; see `make_sum_scaler`.
    """
    scale_sum = make_sum_scaler(tf_keras.losses.Loss, replicas)
    return _LossesContainerWithoutMetrics(
        tf.nest.map_structure(scale_sum, get_private_attribute(compiled, "_user_losses")),
        get_private_attribute(compiled, "_user_loss_weights"),
        output_names=output_names,
        total_loss_mean=_UnusedMetric(),
    )


# The value of `_rng_type` with which tf_keras's random generators use stateful random ops. The
# state of these ops is not a variable, so the replicas do not share it.
_STATEFUL_OPS = "legacy_stateful"


class _TfKerasAdapter:
    """Implements `trainer.keras.model.adapter.KerasAdapter` for tf_keras."""

    name = "tf_keras"
    has_graph_mode = True

    def load(self, path: str, custom_objects: Mapping[str, Any] | None) -> Any:
        return tf_keras.models.load_model(path, custom_objects=custom_objects)

    def input_names(self, model: Any) -> Any:
        names = getattr(model, "input_names", None)
        structure = _find_structure(model, "_nested_inputs")
        if not names or structure is None:
            return None
        if isinstance(structure, Mapping):
            return {name: name for name in structure}
        # Return a single name as a string, because a model with one input takes a tensor and not a
        # list. tf_keras's attribute `input_names` is always a list.
        return names[0] if len(names) == 1 else list(names)

    def input_specs(self, model: Any) -> dict[str, Any] | None:
        structure = _find_structure(model, "_nested_inputs")
        if structure is None or not getattr(model, "input_names", None):
            return None
        named = (
            structure.items()
            if isinstance(structure, Mapping)
            else zip(model.input_names, tf.nest.flatten(structure), strict=True)
        )
        return {name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in named}

    def output_names(self, model: Any) -> Sequence[str] | None:
        names = getattr(model, "output_names", None)
        has_outputs = _find_structure(model, "_nested_outputs") is not None
        return list(names) if names and has_outputs else None

    def layers(self, model: Any) -> Iterable[Any]:
        return list(get_private_attribute(model, "_flatten_layers")())

    def build_optimizer(self, model: Any) -> None:
        if tf_optimizer.is_tf_optimizer(model.optimizer):
            tf_optimizer.create_slots(model.optimizer, model.trainable_variables)
        elif _is_legacy(model.optimizer):
            create_all_weights = get_private_attribute(model.optimizer, "_create_all_weights")
            create_all_weights(model.trainable_variables)
        else:
            model.optimizer.build(model.trainable_variables)

    def model_variables(self, model: Any) -> list[tuple[str, Any, bool]]:
        trained = {id(variable) for variable in model.trainable_variables}
        unique = {id(variable): variable for variable in [*model.weights, *model.variables]}
        # The weights of an adapted lookup layer include the handler of its table.
        return [
            (_get_path(variable), variable, id(variable) in trained)
            for variable in unique.values()
            if isinstance(variable, tf.Variable)
        ]

    def optimizer_variables(self, model: Any) -> list[tuple[str, Any]]:
        optimizer = model.optimizer
        if tf_optimizer.is_tf_optimizer(optimizer):
            return tf_optimizer.named_variables(optimizer, model.trainable_variables)
        listed = optimizer.variables() if _is_legacy(optimizer) else list(optimizer.variables)
        # Add the variables that hold hyperparameters and counters. They are attributes of the
        # optimizer, but missing from its list `variables`.
        hyperparameters = find_private_attribute(optimizer, "_hyper", {})
        others = [*vars(optimizer).values(), *hyperparameters.values()]
        unique = {
            id(value): value for value in [*listed, *others] if isinstance(value, tf.Variable)
        }
        return [(_get_path(variable), variable) for variable in unique.values()]

    def trainable_variables(self, model: Any) -> list[Any]:
        return list(model.trainable_variables)

    def moving_averages(self, model: Any) -> list[Any]:
        optimizer = model.optimizer
        if not _is_new(optimizer) or not optimizer.use_ema:
            return []
        return list(get_private_attribute(optimizer, "_model_variables_moving_average"))

    def iterations(self, model: Any) -> Any:
        return model.optimizer.iterations

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        return model(x, training=training)

    def compute_loss(
        self, model: Any, x: Any, y: Any, y_pred: Any, weights: Any, replicas: int
    ) -> Any:
        compiled = model.compiled_loss
        without_metrics = without_loss_metrics(compiled, model.output_names, replicas)
        object.__setattr__(model, "compiled_loss", without_metrics)
        try:
            return model.compute_loss(x, y, y_pred, weights)
        finally:
            object.__setattr__(model, "compiled_loss", compiled)

    def scale_loss(self, model: Any, loss: Any) -> Any:
        return loss

    def apply_gradients(self, model: Any, gradients: Sequence[Any]) -> None:
        optimizer = model.optimizer
        pairs = list(zip(gradients, model.trainable_variables, strict=True))
        if tf_optimizer.is_tf_optimizer(optimizer):
            tf_optimizer.apply_step(optimizer, pairs)
            return
        counter = find_private_attribute(optimizer, "_u_product_counter")
        optimizer.apply_gradients(pairs)
        if counter is not None:
            # Restore the Python attribute in which the optimizer Nadam counts its calls. Tracing
            # increments the attribute, but each trace of a step must start from the same count.
            set_private_attribute(optimizer, "_u_product_counter", counter)

    @contextlib.contextmanager
    def per_replica_seeds(self, model: Any) -> Iterator[None]:
        # Let the layers use stateful random ops, which draw different numbers on each replica.
        generators = [
            generator
            for layer in self.layers(model)
            if (generator := find_private_attribute(layer, "_random_generator")) is not None
        ]
        kinds = [get_private_attribute(generator, "_rng_type") for generator in generators]
        for generator in generators:
            set_private_attribute(generator, "_rng_type", _STATEFUL_OPS)
        try:
            yield
        finally:
            for generator, kind in zip(generators, kinds, strict=True):
                set_private_attribute(generator, "_rng_type", kind)

    def metric_variables(self, model: Any) -> list[Any]:
        return [variable for metric in model.metrics for variable in metric.variables]

    def local_variables(self) -> list[Any]:
        return []

    def update_metrics(self, model: Any, y: Any, y_pred: Any, weights: Any) -> None:
        if len(tf.nest.flatten(y_pred)) > 1:
            # Call the loss only for its side effect: it updates the metrics that report the loss of
            # each output.
            model.compiled_loss(y, y_pred, weights)
        model.compiled_metrics.update_state(y, y_pred, weights)

    def metric_results(self, model: Any) -> dict[str, Any]:
        total_loss = get_private_attribute(model.compiled_loss, "_total_loss_mean")
        results: dict[str, Any] = {}
        for metric in model.metrics:
            if metric is total_loss:
                continue
            result = metric.result()
            results.update(result if isinstance(result, dict) else {metric.name: result})
        return results

    def loss_names(self, model: Any) -> set[str]:
        return {metric.name for metric in model.compiled_loss.metrics}

    def reset_metrics(self, model: Any) -> None:
        model.reset_metrics()

    def get_mask(self, tensor: Any) -> Any:
        return find_private_attribute(tensor, "_keras_mask")

    def set_mask(self, tensor: Any, mask: Any) -> None:
        attach_to_tensor(tensor, "_keras_mask", mask)

    def finish_training(self, model: Any) -> None:
        if _is_new(model.optimizer):
            model.optimizer.finalize_variable_values(model.trainable_variables)

    def unsupported_options(self, model: Any, use_tpu: bool) -> Iterable[tuple[str, str]]:
        yield from options.overridden_steps(model, tf_keras.Model)
        if not get_private_attribute(model, "_is_compiled") or not model.optimizer:
            yield "not compiled", ""
            return
        if isinstance(model.optimizer, (list, tuple)):
            yield "several optimizers", ""
            return
        for layer in self.layers(model):
            if get_private_attribute(layer, "_metrics"):
                yield "add_metric", layer.name
            if not isinstance(layer, tf_keras.Model):
                dtype_policy = get_private_attribute(layer, "_dtype_policy")
                yield from options.unsupported_layer_options(layer, dtype_policy.name, use_tpu)
        if model.run_eagerly:
            yield "run_eagerly", ""
        if isinstance(model.optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
            yield "LossScaleOptimizer", ""
        if use_tpu and _is_legacy(model.optimizer) and getattr(model.optimizer, "amsgrad", False):
            yield "amsgrad of a legacy optimizer", type(model.optimizer).__name__
        if tf_optimizer.is_tf_optimizer(model.optimizer):
            yield from tf_optimizer.unsupported_options(model.optimizer)
        strategy = get_private_attribute(model, "_distribution_strategy")
        if strategy is not None:
            yield "distribute strategy", type(strategy).__name__
        user_losses = get_private_attribute(model.compiled_loss, "_user_losses")
        yield from options.unreduced_losses(user_losses, ("none",))

    def describe(self, model: Any) -> dict[str, str]:
        metrics = model.compiled_metrics
        describe_optimizer = (
            tf_optimizer.describe_optimizer
            if tf_optimizer.is_tf_optimizer(model.optimizer)
            else options.describe_optimizer
        )
        user_losses = get_private_attribute(model.compiled_loss, "_user_losses")
        weighted_metrics = get_private_attribute(metrics, "_user_weighted_metrics")
        return {
            "optimizer": describe_optimizer(model.optimizer),
            "loss": options.format_names(user_losses),
            "metrics": options.format_names(get_private_attribute(metrics, "_user_metrics")),
            "weighted metrics": options.format_names(weighted_metrics),
            "ignored": options.describe_ignored_options(
                get_private_attribute(model, "_jit_compile"),
                get_private_attribute(model, "_steps_per_execution"),
            ),
        }


ADAPTER = _TfKerasAdapter()


def _find_structure(model: Any, attribute: str) -> Any:
    """Return the nest of a functional model's symbolic inputs or outputs; None for other models."""
    if not get_private_attribute(model, "_is_graph_network"):
        return None
    return get_private_attribute(model, attribute)


def _is_new(optimizer: Any) -> bool:
    return not _is_legacy(optimizer) and not tf_optimizer.is_tf_optimizer(optimizer)


def _is_legacy(optimizer: Any) -> bool:
    return isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer)


def _get_path(variable: Any) -> str:
    """Return a variable's name without the suffix ":0", for example "dense/kernel"."""
    return str(variable.name).partition(":")[0]
