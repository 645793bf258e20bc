"""The adapter through which trainer.keras uses models of Keras 3, on the TensorFlow backend."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import h5py  # type: ignore[import-untyped]
import keras
import tensorflow as tf

from trainer import keras_internals
from trainer.keras import keras3_losses
from trainer.keras.model import options, replica_seeds
from trainer.keras_internals import get_private_attribute
from trainer.tensorflow_internals import tpu_function

# Whether the installed Keras computes the loss of an activity regularizer as a mean over the
# examples of a batch.
_HAS_MEAN_ACTIVITY_LOSS = tuple(map(int, keras.__version__.split(".")[:2])) >= (3, 14)


class _Keras3Adapter:
    """Implements `trainer.keras.model.adapter.KerasAdapter` for Keras 3."""

    name = "Keras 3"
    has_graph_mode = False

    def load(self, path: str, custom_objects: Mapping[str, Any] | None) -> Any:
        model = keras.saving.load_model(path, custom_objects=custom_objects)
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and optimizer.built:
            model.optimizer = _complete_optimizer(optimizer, model.trainable_variables, path)
        return model

    def input_names(self, model: Any) -> Any:
        functional = _find_functional(model)
        if functional is None:
            return None
        structure = get_private_attribute(functional, "_inputs_struct")
        return keras.tree.map_structure(_get_input_name, structure)

    def input_specs(self, model: Any) -> dict[str, Any] | None:
        functional = _find_functional(model)
        if functional is None:
            return None
        structure = get_private_attribute(functional, "_inputs_struct")
        named = (
            structure.items()
            if isinstance(structure, Mapping)
            else [(_get_input_name(tensor), tensor) for tensor in keras.tree.flatten(structure)]
        )
        return {name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in named}

    def output_names(self, model: Any) -> Sequence[str] | None:
        functional = _find_functional(model)
        return None if functional is None else list(functional.output_names)

    def layers(self, model: Any) -> Iterable[Any]:
        return list(get_private_attribute(model, "_flatten_layers")())

    def build_optimizer(self, model: Any) -> None:
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)

    def model_variables(self, model: Any) -> list[tuple[str, Any, bool]]:
        trained = {id(variable) for variable in model.trainable_variables}
        unique = {id(variable): variable for variable in model.variables}
        return [
            (variable.path, variable.value, id(variable) in trained) for variable in unique.values()
        ]

    def optimizer_variables(self, model: Any) -> list[tuple[str, Any]]:
        optimizer = model.optimizer
        listed = list(optimizer.variables)
        known = {id(variable) for variable in listed}
        # Add the variables that are attributes of the optimizer but missing from
        # optimizer.variables, such as Nadam's product of momenta.
        others = [
            value
            for value in vars(optimizer).values()
            if isinstance(value, keras.Variable) and id(value) not in known
        ]
        paths = [variable.path for variable in model.trainable_variables]
        return [
            (_restore_slot_path(variable.path, paths), variable.value)
            for variable in [*listed, *others]
        ]

    def trainable_variables(self, model: Any) -> list[Any]:
        return [variable.value for variable in model.trainable_variables]

    def moving_averages(self, model: Any) -> list[Any]:
        optimizer = model.optimizer
        if not optimizer.use_ema:
            return []
        averages = get_private_attribute(optimizer, "_model_variables_moving_average")
        return [variable.value for variable in averages]

    def iterations(self, model: Any) -> Any:
        # Read the private variable `_iterations`, which counts steps. The public `iterations`
        # counts updates of the weights.
        return get_private_attribute(model.optimizer, "_iterations").value

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        has_training_argument = get_private_attribute(model, "_call_has_training_arg")
        with _sum_activity_losses_over_batch(self.layers(model)):
            return model(x, training=training) if has_training_argument else model(x)

    def compute_loss(
        self, model: Any, x: Any, y: Any, y_pred: Any, weights: Any, replicas: int
    ) -> Any:
        compiled = get_private_attribute(model, "_compile_loss")
        without_metrics = keras3_losses.without_loss_metrics(compiled, replicas)
        with _replaced_attributes(model, _compile_loss=without_metrics):
            return get_private_attribute(model, "_compute_loss")(
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
        generators = {
            id(generator): generator
            for layer in self.layers(model)
            for generator in _seed_generators(layer)
        }
        global_generator = keras_internals.global_seed_generator()
        with contextlib.ExitStack() as stack:
            for generator in [*generators.values(), global_generator]:
                next_seed = _make_next_seed(generator)
                stack.enter_context(_replaced_attributes(generator, next=next_seed))
            yield

    def metric_variables(self, model: Any) -> list[Any]:
        return [variable.value for metric in model.metrics for variable in metric.variables]

    def local_variables(self) -> list[Any]:
        return [keras_internals.global_seed_generator().state.value]

    def update_metrics(self, model: Any, y: Any, y_pred: Any, weights: Any) -> None:
        compiled_loss = get_private_attribute(model, "_compile_loss")
        if compiled_loss is not None and len(keras.tree.flatten(y_pred)) > 1:
            # Call the loss only for its side effect: it updates the metrics that report the loss of
            # each output.
            compiled_loss(y, y_pred, weights)
        compiled_metrics = get_private_attribute(model, "_compile_metrics")
        if compiled_metrics is not None:
            compiled_metrics.update_state(y, y_pred, weights)

    def metric_results(self, model: Any) -> dict[str, Any]:
        loss_tracker = get_private_attribute(model, "_loss_tracker")
        results: dict[str, Any] = {}
        for metric in model.metrics:
            if metric is loss_tracker:
                continue
            result = metric.result()
            results.update(result if isinstance(result, dict) else {metric.name: result})
        return results

    def loss_names(self, model: Any) -> set[str]:
        compiled = get_private_attribute(model, "_compile_loss")
        return set() if compiled is None else {metric.name for metric in compiled.metrics}

    def reset_metrics(self, model: Any) -> None:
        model.reset_metrics()

    def get_mask(self, tensor: Any) -> Any:
        return keras_internals.get_keras_mask(tensor)

    def set_mask(self, tensor: Any, mask: Any) -> None:
        keras_internals.set_keras_mask(tensor, mask)

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
        compiled_metrics = {
            get_private_attribute(model, "_loss_tracker"),
            get_private_attribute(model, "_compile_metrics"),
        }
        for layer in self.layers(model):
            metrics = get_private_attribute(layer, "_metrics")
            # Ignore the metrics that compile() has added to the model. Only metrics that the user
            # has added by add_metric are unsupported.
            if metrics and (layer is not model or set(metrics) - compiled_metrics):
                yield "add_metric", layer.name
            if not isinstance(layer, keras.Model):
                yield from options.unsupported_layer_options(
                    layer, layer.dtype_policy.name, use_tpu
                )
        if model.run_eagerly:
            yield "run_eagerly", ""
        if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
            yield "LossScaleOptimizer", ""
        strategy = get_private_attribute(model, "_distribute_strategy")
        if strategy is not None:
            yield "distribute strategy", type(strategy).__name__
        yield from options.unreduced_losses(_user_losses(model), ("none", None))

    def describe(self, model: Any) -> dict[str, str]:
        metrics = get_private_attribute(model, "_compile_metrics")
        plain, weighted = (
            None if metrics is None else get_private_attribute(metrics, attribute)
            for attribute in ("_user_metrics", "_user_weighted_metrics")
        )
        jit_compile = get_private_attribute(model, "_jit_compile")
        return {
            "optimizer": options.describe_optimizer(model.optimizer),
            "loss": options.format_names(_user_losses(model)),
            "metrics": options.format_names(plain),
            "weighted metrics": options.format_names(weighted),
            "ignored": options.describe_ignored_options(jit_compile, model.steps_per_execution),
        }


ADAPTER = _Keras3Adapter()


def _user_losses(model: Any) -> Any:
    """Return the `loss` argument that the user passed to compile(); None without a loss."""
    compiled = get_private_attribute(model, "_compile_loss")
    return None if compiled is None else get_private_attribute(compiled, "_user_loss")


def _complete_optimizer(optimizer: Any, variables: Sequence[Any], path: str) -> Any:
    """Return an optimizer with slot variables for all trainable variables of a loaded model."""
    if len(get_private_attribute(optimizer, "_trainable_variables")) == len(variables):
        return optimizer
    rebuilt = type(optimizer).from_config(optimizer.get_config())
    rebuilt.build(variables)
    with h5py.File(path) as file:
        values = keras_internals.load_optimizer_weights_from_hdf5_group(file)
        for variable, value in zip(rebuilt.variables, values, strict=True):
            variable.assign(value[()])
    return rebuilt


_MISSING = object()


@contextlib.contextmanager
def _replaced_attributes(owner: Any, **attributes: Any) -> Iterator[None]:
    """Replace attributes of a Keras object inside a context, bypassing Keras's __setattr__."""
    originals = {name: owner.__dict__.get(name, _MISSING) for name in attributes}
    for name, value in attributes.items():
        object.__setattr__(owner, name, value)
    try:
        yield
    finally:
        for name, value in originals.items():
            if value is _MISSING:
                object.__delattr__(owner, name)
            else:
                object.__setattr__(owner, name, value)


@contextlib.contextmanager
def _sum_activity_losses_over_batch(layers: Iterable[Any]) -> Iterator[None]:
    """Scale activity regularizers inside a context, for several replicas."""
    replicas = tpu_function.get_tpu_context().number_of_shards or 1
    with contextlib.ExitStack() as stack:
        for layer in layers if replicas > 1 and not _HAS_MEAN_ACTIVITY_LOSS else ():
            if layer.activity_regularizer is not None:
                scaled = _multiply_regularizer(layer.activity_regularizer, replicas)
                stack.enter_context(_replaced_attributes(layer, activity_regularizer=scaled))
        yield


def _multiply_regularizer(regularizer: Any, factor: int) -> Any:
    return lambda output: regularizer(output) * float(factor)


def _make_next_seed(generator: Any) -> Any:
    """Return a function that replaces SeedGenerator.next; its seeds differ between the replicas."""
    original_next = generator.next

    def next_seed(*arguments: Any, **named: Any) -> Any:
        return replica_seeds.offset_by_replica(original_next(*arguments, **named))

    return next_seed


def _seed_generators(layer: Any) -> list[Any]:
    return [
        value
        for value in (*vars(layer).values(), *get_private_attribute(layer, "_seed_generators"))
        if isinstance(value, keras.random.SeedGenerator)
    ]


def _find_functional(model: Any) -> Any:
    """Return the functional Keras model that defines a model's inputs and outputs."""
    if isinstance(model, keras.Sequential):
        return get_private_attribute(model, "_functional")
    return model if isinstance(model, keras_internals.Functional) else None


def _get_input_name(tensor: Any) -> str:
    return str(get_private_attribute(tensor, "_keras_history").operation.name)


def _restore_slot_path(path: str, variable_paths: Sequence[str]) -> str:
    """Restore the slashes of a trainable variable's path inside the path of its optimizer slot."""
    optimizer, _, name = path.partition("/")
    flat_paths = {path.replace("/", "_"): path for path in reversed(variable_paths)}
    matches = [flat for flat in flat_paths if name.startswith(flat + "_")]
    if not matches:
        return path
    longest = max(matches, key=len)
    return f"{optimizer}/{flat_paths[longest]}/{name[len(longest) + 1 :]}"
