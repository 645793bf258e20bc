"""tf_keras, which is Keras 2."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.src.optimizers.legacy import optimizer_v2

from trainer.keras.model import options
from trainer.keras.tf_keras import losses, tf_optimizer

_DRAWS = "legacy_stateful"


class _TfKerasAdapter:
    """See `trainer.keras.model.adapter.KerasAdapter`."""

    name = "tf_keras"
    has_graph_mode = True

    def load(self, path: str, custom_objects: Mapping[str, Any] | None) -> Any:
        return tf_keras.models.load_model(path, custom_objects=custom_objects)

    def input_names(self, model: Any) -> Any:
        names = getattr(model, "input_names", None)
        structure = getattr(model, "_nested_inputs", None)
        if not names or structure is None:
            return None
        if isinstance(structure, Mapping):
            return {name: name for name in structure}
        # A Sequential has its only input in a list.
        return names[0] if len(names) == 1 else list(names)

    def input_specs(self, model: Any) -> dict[str, Any] | None:
        structure = getattr(model, "_nested_inputs", None)
        if structure is None or not getattr(model, "input_names", None):
            return None
        named = (
            structure.items()
            if isinstance(structure, Mapping)
            else zip(model.input_names, tf.nest.flatten(structure), strict=True)
        )
        return {name: tf.TensorSpec(each.shape, each.dtype) for name, each in named}

    def output_names(self, model: Any) -> Sequence[str] | None:
        names = getattr(model, "output_names", None)
        return (
            list(names) if names and getattr(model, "_nested_outputs", None) is not None else None
        )

    def layers(self, model: Any) -> Iterable[Any]:
        return list(model._flatten_layers())

    def build_optimizer(self, model: Any) -> None:
        if tf_optimizer.is_tf_optimizer(model.optimizer):
            tf_optimizer.create_slots(model.optimizer, model.trainable_variables)
        elif _is_legacy(model.optimizer):
            model.optimizer._create_all_weights(model.trainable_variables)
        else:
            model.optimizer.build(model.trainable_variables)

    def model_variables(self, model: Any) -> list[tuple[str, Any, bool]]:
        trained = {id(each) for each in model.trainable_variables}
        found = {id(each): each for each in [*model.weights, *model.variables]}
        return [(_path(each), each, id(each) in trained) for each in found.values()]

    def optimizer_variables(self, model: Any) -> list[tuple[str, Any]]:
        optimizer = model.optimizer
        if tf_optimizer.is_tf_optimizer(optimizer):
            return tf_optimizer.named_variables(optimizer, model.trainable_variables)
        own = optimizer.variables() if _is_legacy(optimizer) else list(optimizer.variables)
        others = [*vars(optimizer).values(), *getattr(optimizer, "_hyper", {}).values()]
        found = {id(each): each for each in [*own, *others] if isinstance(each, tf.Variable)}
        return [(_path(each), each) for each in found.values()]

    def trainable_variables(self, model: Any) -> list[Any]:
        return list(model.trainable_variables)

    def moving_averages(self, model: Any) -> list[Any]:
        optimizer = model.optimizer
        if _is_pre_keras_2_11(optimizer) or not optimizer.use_ema:
            return []
        return list(optimizer._model_variables_moving_average)

    def iterations(self, model: Any) -> Any:
        return model.optimizer.iterations

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        return model(x, training=training)

    def compute_loss(
        self, model: Any, x: Any, y: Any, y_pred: Any, weights: Any, replicas: int
    ) -> Any:
        compiled = model.compiled_loss
        quiet = losses.without_loss_metrics(compiled, model.output_names, replicas)
        object.__setattr__(model, "compiled_loss", quiet)
        try:
            return model.compute_loss(x, y, y_pred, weights)
        finally:
            object.__setattr__(model, "compiled_loss", compiled)

    def scale_loss(self, model: Any, loss: Any) -> Any:
        return loss

    def apply_gradients(self, model: Any, gradients: Sequence[Any]) -> None:
        optimizer = model.optimizer
        if tf_optimizer.is_tf_optimizer(optimizer):
            tf_optimizer.apply_step(
                optimizer, zip(gradients, model.trainable_variables, strict=True)
            )
            return
        counter = getattr(optimizer, "_u_product_counter", None)
        optimizer.apply_gradients(list(zip(gradients, model.trainable_variables, strict=True)))
        if counter is not None:
            # Nadam counts in Python as it is traced, and another trace must find what this found.
            optimizer._u_product_counter = counter

    @contextlib.contextmanager
    def per_replica_seeds(self, model: Any) -> Iterator[None]:
        # Ops that draw by themselves do so on each replica; a tf.random.Generator, which is a
        # variable, gives all replicas the same.
        generators = [
            layer._random_generator
            for layer in self.layers(model)
            if getattr(layer, "_random_generator", None) is not None
        ]
        before = [each._rng_type for each in generators]
        for each in generators:
            each._rng_type = _DRAWS
        try:
            yield
        finally:
            for each, kind in zip(generators, before, strict=True):
                each._rng_type = kind

    def metric_variables(self, model: Any) -> list[Any]:
        return [each for metric in model.metrics for each in metric.variables]

    def local_variables(self) -> list[Any]:
        return []

    def update_metrics(self, model: Any, y: Any, y_pred: Any, weights: Any) -> None:
        if len(tf.nest.flatten(y_pred)) > 1:
            # It counts the loss of each output beside.
            model.compiled_loss(y, y_pred, weights)
        model.compiled_metrics.update_state(y, y_pred, weights)

    def metric_results(self, model: Any) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for metric in model.metrics:
            if metric is model.compiled_loss._total_loss_mean:
                continue
            result = metric.result()
            results.update(result if isinstance(result, dict) else {metric.name: result})
        return results

    def loss_names(self, model: Any) -> set[str]:
        return {each.name for each in model.compiled_loss.metrics}

    def reset_metrics(self, model: Any) -> None:
        model.reset_metrics()

    def get_mask(self, tensor: Any) -> Any:
        return getattr(tensor, "_keras_mask", None)

    def set_mask(self, tensor: Any, mask: Any) -> None:
        tensor._keras_mask = mask

    def finish_training(self, model: Any) -> None:
        if not _is_pre_keras_2_11(model.optimizer):
            model.optimizer.finalize_variable_values(model.trainable_variables)

    def unsupported_options(self, model: Any, use_tpu: bool) -> Iterable[tuple[str, str]]:
        yield from options.overridden_steps(model, tf_keras.Model)
        if not model._is_compiled or not model.optimizer:
            yield "not compiled", ""
            return
        for layer in self.layers(model):
            if layer._metrics:
                yield "add_metric", layer.name
            if not isinstance(layer, tf_keras.Model):
                yield from options.unsupported_layer_options(layer, layer._dtype_policy.name)
        if model.run_eagerly:
            yield "run_eagerly", ""
        if isinstance(model.optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
            yield "LossScaleOptimizer", ""
        if use_tpu and _is_legacy(model.optimizer) and getattr(model.optimizer, "amsgrad", False):
            yield "amsgrad of a legacy optimizer", type(model.optimizer).__name__
        if tf_optimizer.is_tf_optimizer(model.optimizer):
            yield from tf_optimizer.unsupported_options(model.optimizer)
        if model._distribution_strategy is not None:
            yield "distribute strategy", type(model._distribution_strategy).__name__
        yield from options.unreduced_losses(model.compiled_loss._user_losses, ("none",))

    def describe(self, model: Any) -> dict[str, str]:
        metrics = model.compiled_metrics
        return {
            "optimizer": tf_optimizer.describe_optimizer(model.optimizer)
            if tf_optimizer.is_tf_optimizer(model.optimizer)
            else options.describe_optimizer(model.optimizer),
            "loss": options.format_names(model.compiled_loss._user_losses),
            "metrics": options.format_names(metrics._user_metrics),
            "weighted metrics": options.format_names(metrics._user_weighted_metrics),
            "left alone": options.describe_ignored_options(
                model._jit_compile, model._steps_per_execution
            ),
        }


ADAPTER = _TfKerasAdapter()


def _is_pre_keras_2_11(optimizer: Any) -> bool:
    return _is_legacy(optimizer) or tf_optimizer.is_tf_optimizer(optimizer)


def _is_legacy(optimizer: Any) -> bool:
    return isinstance(optimizer, optimizer_v2.OptimizerV2)


def _path(variable: Any) -> str:
    return str(variable.name).partition(":")[0]
