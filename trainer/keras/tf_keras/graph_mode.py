"""Clones tf_keras models that were built without eager execution, as in programs of TensorFlow 1.

The weights of such a model live in the session of a graph, and its steps are ops of this graph. An
estimator cannot use the model itself.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from tpuserve.errors import InvalidSetting
from trainer.keras.model.tracing import eager_mode
from trainer.keras.model.unsupported_options import unsupported_option_error
from trainer.keras.tf_keras import graph_mode_compile_args, graph_mode_optimizer
from trainer.keras.tf_keras.adapter import ADAPTER
from trainer.keras_internals import find_private_attribute, get_private_attribute


def clone_for_eager(model: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Make an eager clone of a model that was built without eager execution.

    The clone has the values that the original's variables have in the session.

    Args:
      custom_objects: name → class or function that the configurations of the layers need.

    Raises:
      InvalidSetting: the model has an option that `trainer.keras.model.unsupported_options` lists;
        the message names the option.
    """
    label = f"{ADAPTER.name} model {model.name}"
    for option, owner in _unsupported_options(model):
        raise unsupported_option_error(option, f"{label} ({owner})" if owner else label)
    with _use_graph(model):
        values = tf_keras.backend.batch_get_value(_get_weights(model))
        optimizer_state = graph_mode_optimizer.GraphOptimizerState(model)
    with eager_mode(), tf_keras.utils.custom_object_scope(dict(custom_objects or {})):
        clone = _clone_layers(model, label)
        if model.built:
            _copy_trainable_flags(model, clone, label)
            clone.set_weights(values)
        clone.compile(
            optimizer_state.recreate(), **graph_mode_compile_args.build_compile_args(model)
        )
        if model.built:
            ADAPTER.build_optimizer(clone)
            for key, variable in graph_mode_optimizer.state_variables(clone).items():
                if key in optimizer_state.values:
                    variable.assign(optimizer_state.values[key])
    return clone


def copy_back(clone: Any, model: Any) -> None:
    """Copy the values of a clone and of its optimizer into the session of the original model."""
    if not model.built or not get_private_attribute(model, "_is_compiled"):
        raise InvalidSetting(
            f"{ADAPTER.name} model {model.name} has no weights in its session yet, because it has "
            f"not processed a batch. Give its first layer an input_shape, or call model.predict "
            f"once before you convert it to a TPUEstimator."
        )
    with eager_mode():
        values = clone.get_weights()
        state = {
            key: variable.numpy()
            for key, variable in graph_mode_optimizer.state_variables(clone).items()
        }
    with _use_graph(model):
        # Build the model's training function, but do not call it. Building it creates the
        # optimizer's variables.
        get_private_attribute(model, "_make_train_function")()
        slots = graph_mode_optimizer.state_variables(model)
        assignments = [(slots[key], value) for key, value in state.items()]
        tf_keras.backend.batch_set_value([*zip(model.weights, values, strict=True), *assignments])


def _unsupported_options(model: Any) -> Iterator[tuple[str, str]]:
    if not getattr(model, "optimizer", None):
        yield "not compiled", ""
        return
    strategy = get_private_attribute(model, "_distribution_strategy")
    if strategy is not None:
        yield "distribute strategy", type(strategy).__name__
    yield from graph_mode_optimizer.unsupported_options(model.optimizer)


@contextlib.contextmanager
def _use_graph(model: Any) -> Iterator[None]:
    graphs = [tensor.graph for tensor in [*_get_weights(model), *(model.inputs or ())]]
    with (graphs or [tf.compat.v1.get_default_graph()])[0].as_default():
        yield


def _get_weights(model: Any) -> list[Any]:
    return list(model.weights) if model.built else []


def _clone_layers(model: Any, label: str) -> Any:
    """Build a clone of a model, with copies of its layers and with new weights."""
    try:
        is_graph_network = get_private_attribute(model, "_is_graph_network")
        if is_graph_network or isinstance(model, tf_keras.Sequential):
            clone = tf_keras.models.clone_model(model, _inferred_input(model))
        else:
            clone = type(model).from_config(model.get_config())
        if model.built and not clone.built:
            inputs = [_zeros_like(tensor) for tensor in model.inputs]
            clone(inputs[0] if len(inputs) == 1 else inputs)
    except Exception as error:
        # Catch all exceptions, because get_config and constructors of the user's layers can raise
        # errors of any type.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise unsupported_option_error("no get_config", f"{label} ({reason})", error) from error
    return clone


def _get_layers(model: Any) -> list[Any]:
    """Return a model and all layers inside it at any depth, except input layers."""
    layers = get_private_attribute(model, "_flatten_layers")()
    return [layer for layer in layers if not isinstance(layer, tf_keras.layers.InputLayer)]


def _inferred_input(model: Any) -> Any:
    if get_private_attribute(model, "_is_graph_network") or not model.built:
        return None
    (tensor,) = model.inputs
    (name,) = model.input_names
    return tf_keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=name)


def _zeros_like(tensor: Any) -> Any:
    """Return zeros with a placeholder's shape and dtype; unknown dimensions have the size 1."""
    return tf.zeros([size or 1 for size in tensor.shape.as_list()], tensor.dtype)


def _copy_trainable_flags(model: Any, clone: Any, label: str) -> None:
    compiled_flags = find_private_attribute(model, "_compiled_trainable_state", {})
    for layer, cloned in zip(_get_layers(model), _get_layers(clone), strict=True):
        cloned.trainable = compiled_flags.get(layer, layer.trainable)
        added_losses, cloned_losses = (
            get_private_attribute(owner, "_callable_losses") for owner in (layer, cloned)
        )
        if len(added_losses) != len(cloned_losses):
            raise unsupported_option_error("add_loss of a function", f"{label} ({layer.name})")
