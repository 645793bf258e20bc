"""Keras 3 on TensorFlow."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import h5py  # type: ignore[import-untyped]
import keras
import tensorflow as tf
from keras.src import backend
from keras.src.legacy.saving import legacy_h5_format
from keras.src.random import seed_generator

from trainer.keras.keras3 import losses as keras3_losses
from trainer.keras.model import options, replica_seeds
from trainer.tensorflow_internals import tpu_function

# Until then the loss of an activity regularizer is a sum over rows, and no mean.
_HAS_MEAN_ACTIVITIES = tuple(map(int, keras.__version__.split(".")[:2])) >= (3, 14)


class _Keras3Adapter:
    """See `trainer.keras.model.adapter.KerasAdapter`."""

    name = "Keras 3"
    has_graph_mode = False

    def load(self, path: str, custom_objects: Mapping[str, Any] | None) -> Any:
        model = keras.saving.load_model(path, custom_objects=custom_objects)
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and optimizer.built:
            model.optimizer = _rebuild_optimizer(optimizer, model.trainable_variables, path)
        return model

    def input_names(self, model: Any) -> Any:
        structure = getattr(_functional(model), "_inputs_struct", None)
        if structure is None:
            return None
        return keras.tree.map_structure(_input_name, structure)

    def input_specs(self, model: Any) -> dict[str, Any] | None:
        functional = _functional(model)
        if functional is None:
            return None
        structure = functional._inputs_struct
        named = (
            structure.items()
            if isinstance(structure, Mapping)
            else [(_input_name(each), each) for each in keras.tree.flatten(structure)]
        )
        return {name: tf.TensorSpec(each.shape, each.dtype) for name, each in named}

    def output_names(self, model: Any) -> Sequence[str] | None:
        functional = _functional(model)
        return None if functional is None else list(functional.output_names)

    def layers(self, model: Any) -> Iterable[Any]:
        return list(model._flatten_layers())

    def build_optimizer(self, model: Any) -> None:
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)

    def model_variables(self, model: Any) -> list[tuple[str, Any, bool]]:
        trained = {id(each) for each in model.trainable_variables}
        found = {id(each): each for each in model.variables}
        return [(each.path, each.value, id(each) in trained) for each in found.values()]

    def optimizer_variables(self, model: Any) -> list[tuple[str, Any]]:
        optimizer = model.optimizer
        own = list(optimizer.variables)
        known = {id(each) for each in own}
        # Some, as Nadam's product, are attributes alone.
        others = [
            each
            for each in vars(optimizer).values()
            if isinstance(each, backend.Variable) and id(each) not in known
        ]
        references = [
            (each.path.replace("/", "_"), each.path) for each in model.trainable_variables
        ]
        return [(_slot_path(each.path, references), each.value) for each in [*own, *others]]

    def trainable_variables(self, model: Any) -> list[Any]:
        return [each.value for each in model.trainable_variables]

    def moving_averages(self, model: Any) -> list[Any]:
        optimizer = model.optimizer
        if not optimizer.use_ema:
            return []
        return [each.value for each in optimizer._model_variables_moving_average]

    def iterations(self, model: Any) -> Any:
        # What it calls iterations is fewer where gradients are accumulated.
        return model.optimizer._iterations.value

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        with _sum_activity_losses_over_batch(self.layers(model)):
            return model(x, training=training) if model._call_has_training_arg else model(x)

    def compute_loss(
        self, model: Any, x: Any, y: Any, y_pred: Any, weights: Any, replicas: int
    ) -> Any:
        with _replaced_attributes(
            model, _compile_loss=keras3_losses.without_loss_metrics(model._compile_loss, replicas)
        ):
            return model._compute_loss(
                x=x, y=y, y_pred=y_pred, sample_weight=weights, training=True
            )

    def scale_loss(self, model: Any, loss: Any) -> Any:
        return model.optimizer.scale_loss(loss)

    def apply_gradients(self, model: Any, gradients: Sequence[Any]) -> None:
        model.optimizer.apply_gradients(
            list(zip(gradients, model.trainable_variables, strict=True))
        )

    @contextlib.contextmanager
    def per_replica_seeds(self, model: Any) -> Iterator[None]:
        generators = {id(each): each for layer in self.layers(model) for each in _generators(layer)}
        with contextlib.ExitStack() as stack:
            for each in [*generators.values(), seed_generator.global_seed_generator()]:
                stack.enter_context(_replaced_attributes(each, next=_make_next_seed(each)))
            yield

    def metric_variables(self, model: Any) -> list[Any]:
        return [each.value for metric in model.metrics for each in metric.variables]

    def local_variables(self) -> list[Any]:
        return [seed_generator.global_seed_generator().state.value]

    def update_metrics(self, model: Any, y: Any, y_pred: Any, weights: Any) -> None:
        if model._compile_loss is not None and len(keras.tree.flatten(y_pred)) > 1:
            # It counts the loss of each output beside.
            model._compile_loss(y, y_pred, weights)
        if model._compile_metrics is not None:
            model._compile_metrics.update_state(y, y_pred, weights)

    def metric_results(self, model: Any) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for metric in model.metrics:
            if metric is model._loss_tracker:
                continue
            result = metric.result()
            results.update(result if isinstance(result, dict) else {metric.name: result})
        return results

    def loss_names(self, model: Any) -> set[str]:
        compiled = model._compile_loss
        return set() if compiled is None else {each.name for each in compiled.metrics}

    def reset_metrics(self, model: Any) -> None:
        model.reset_metrics()

    def get_mask(self, tensor: Any) -> Any:
        return backend.get_keras_mask(tensor)

    def set_mask(self, tensor: Any, mask: Any) -> None:
        backend.set_keras_mask(tensor, mask)

    def finish_training(self, model: Any) -> None:
        model.optimizer.finalize_variable_values(model.trainable_variables)

    def unsupported_options(self, model: Any, use_tpu: bool) -> Iterable[tuple[str, str]]:
        if keras.backend.backend() != "tensorflow":
            yield "KERAS_BACKEND", keras.backend.backend()
            return
        yield from options.overridden_steps(model, keras.Model)
        if not model.compiled or model.optimizer is None:
            yield "not compiled", ""
            return
        for layer in self.layers(model):
            # Of a model, some are those of compile().
            if layer._metrics and (
                layer is not model or set(layer._metrics) - _compile_metrics_of(model)
            ):
                yield "add_metric", layer.name
            if not isinstance(layer, keras.Model):
                yield from options.unsupported_layer_options(layer, layer.dtype_policy.name)
        if model.run_eagerly:
            yield "run_eagerly", ""
        if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
            yield "LossScaleOptimizer", ""
        if model._distribute_strategy is not None:
            yield "distribute strategy", type(model._distribute_strategy).__name__
        losses = [] if model._compile_loss is None else [model._compile_loss._user_loss]
        yield from options.unreduced_losses(losses, ("none", None))

    def describe(self, model: Any) -> dict[str, str]:
        loss, metrics = model._compile_loss, model._compile_metrics
        return {
            "optimizer": options.describe_optimizer(model.optimizer),
            "loss": options.format_names(None if loss is None else loss._user_loss),
            "metrics": options.format_names(None if metrics is None else metrics._user_metrics),
            "weighted metrics": options.format_names(
                None if metrics is None else metrics._user_weighted_metrics
            ),
            "left alone": options.describe_ignored_options(
                model._jit_compile, model.steps_per_execution
            ),
        }


ADAPTER = _Keras3Adapter()


def _rebuild_optimizer(optimizer: Any, variables: Sequence[Any], path: str) -> Any:
    """An optimizer that was loaded, or one in its place, where it was built for other variables.

    Keras builds the one of an .h5 file for the variables that the model itself has, without those
    of its layers.
    """
    if len(optimizer._trainable_variables) == len(variables):
        return optimizer
    made = type(optimizer).from_config(optimizer.get_config())
    made.build(variables)
    with h5py.File(path) as file:
        values = legacy_h5_format.load_optimizer_weights_from_hdf5_group(file)
        for variable, value in zip(made.variables, values, strict=True):
            variable.assign(value[()])
    return made


@contextlib.contextmanager
def _replaced_attributes(owner: Any, **attributes: Any) -> Iterator[None]:
    # Past what a model does with its attributes when they are set.
    before = {name: owner.__dict__.get(name, _replaced_attributes) for name in attributes}
    for name, value in attributes.items():
        object.__setattr__(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is _replaced_attributes:
                object.__delattr__(owner, name)
            else:
                object.__setattr__(owner, name, value)


@contextlib.contextmanager
def _sum_activity_losses_over_batch(layers: Iterable[Any]) -> Iterator[None]:
    """Within it the mean over replicas of an activity regularizer's loss is one over all rows."""
    replicas = tpu_function.get_tpu_context().number_of_shards or 1
    with contextlib.ExitStack() as stack:
        for layer in layers if replicas > 1 and not _HAS_MEAN_ACTIVITIES else ():
            if layer.activity_regularizer is not None:
                summed = _multiply_regularizer(layer.activity_regularizer, replicas)
                stack.enter_context(_replaced_attributes(layer, activity_regularizer=summed))
        yield


def _multiply_regularizer(regularizer: Any, replicas: int) -> Any:
    return lambda output: regularizer(output) * float(replicas)


def _make_next_seed(generator: Any) -> Any:
    draw = generator.next

    def next_seed(*arguments: Any, **named: Any) -> Any:
        return replica_seeds.offset_by_replica(draw(*arguments, **named))

    return next_seed


def _generators(layer: Any) -> list[Any]:
    return [
        each
        for each in (*vars(layer).values(), *getattr(layer, "_seed_generators", ()))
        if isinstance(each, keras.random.SeedGenerator)
    ]


def _functional(model: Any) -> Any:
    """What knows a model's inputs; None for a subclassed or unbuilt one."""
    if isinstance(model, keras.Sequential):
        return model._functional
    return model if hasattr(model, "_inputs_struct") else None


def _input_name(tensor: Any) -> str:
    return str(tensor._keras_history.operation.name)


def _slot_path(path: str, references: Sequence[tuple[str, str]]) -> str:
    """A slot's path with that of its variable in it, whose slashes Keras has made underscores."""
    optimizer, _, name = path.partition("/")
    found = [one for one in references if name.startswith(one[0] + "_")]
    if not found:
        return path
    flat, reference = max(found, key=lambda one: len(one[0]))
    return f"{optimizer}/{reference}/{name[len(flat) + 1 :]}"


def _compile_metrics_of(model: Any) -> set[Any]:
    return {model._loss_tracker, model._compile_metrics}
