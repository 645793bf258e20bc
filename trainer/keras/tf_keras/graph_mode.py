"""Models of tf_keras that were made without eager execution, as programs of TensorFlow 1 do.

Their weights live in the session of a graph, and their steps are ops of it. Such a model stays as
it is; what becomes an estimator is its twin: the same layers, compiled alike, with the same values,
made for eager execution.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.src import backend

from tpuserve.errors import InvalidSetting
from trainer.keras.model.tracing import eager_mode
from trainer.keras.model.unsupported_options import unsupported_option_error
from trainer.keras.tf_keras import graph_mode_compile_args, graph_mode_optimizer
from trainer.keras.tf_keras.adapter import ADAPTER


def clone_for_eager(model: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The model again, made for eager execution, with the values of its session.

    Args:
      model: compiled; it is not changed.
      custom_objects: name → class or function that the configurations of its layers need.

    Raises:
      InvalidSetting: it has an option of `trainer.keras.model.unsupported_options`; it is named.
    """
    where = f"{ADAPTER.name} model {model.name}"
    for option, place in _unsupported_options(model):
        raise unsupported_option_error(option, f"{where}{place and f' ({place})'}")
    with _in_graph(model):
        values = backend.batch_get_value(_weights(model))
        optimizer = graph_mode_optimizer.GraphOptimizerState(model)
    with eager_mode(), tf_keras.utils.custom_object_scope(dict(custom_objects or {})):
        made = _clone_layers(model, where)
        if model.built:
            _copy_trainable_flags(model, made, where)
            made.set_weights(values)
        made.compile(optimizer.recreate(), **graph_mode_compile_args.build_compile_args(model))
        if model.built:
            ADAPTER.build_optimizer(made)
            for key, variable in graph_mode_optimizer.state_variables(made).items():
                if key in optimizer.values:
                    variable.assign(optimizer.values[key])
    return made


def copy_back(made: Any, model: Any) -> None:
    """Puts the values of a twin, and of its optimizer, into the session of the model.

    Raises:
      InvalidSetting: the model has no weights yet.
    """
    if not model.built or not model._is_compiled:
        raise InvalidSetting(
            f"{ADAPTER.name} model {model.name} has never met a batch, so there is nothing in its "
            f"session to put values into. Give its first layer an input_shape, or call "
            f"model.predict once before it becomes a TPUEstimator."
        )
    with eager_mode():
        values = made.get_weights()
        found = {
            key: each.numpy() for key, each in graph_mode_optimizer.state_variables(made).items()
        }
    with _in_graph(model):
        # The optimizer's variables are made by it.
        model._make_train_function()
        own = graph_mode_optimizer.state_variables(model)
        slots = [(own[key], value) for key, value in found.items()]
        backend.batch_set_value([*zip(model.weights, values, strict=True), *slots])


def _unsupported_options(model: Any) -> Iterator[tuple[str, str]]:
    if not getattr(model, "optimizer", None):
        yield "not compiled", ""
        return
    if model._distribution_strategy is not None:
        yield "distribute strategy", type(model._distribution_strategy).__name__
    yield from graph_mode_optimizer.unsupported_options(model.optimizer)


@contextlib.contextmanager
def _in_graph(model: Any) -> Iterator[None]:
    graphs = [each.graph for each in [*_weights(model), *(model.inputs or ())]]
    with (graphs or [tf.compat.v1.get_default_graph()])[0].as_default():
        yield


def _weights(model: Any) -> list[Any]:
    return list(model.weights) if model.built else []


def _clone_layers(model: Any, where: str) -> Any:
    """The same layers."""
    try:
        if model._is_graph_network or isinstance(model, tf_keras.Sequential):
            made = tf_keras.models.clone_model(model, _inferred_input(model))
        else:
            made = type(model).from_config(model.get_config())
        if model.built and not made.built:
            inputs = [_zeros(each) for each in model.inputs]
            made(inputs[0] if len(inputs) == 1 else inputs)
    except Exception as error:
        # Whatever configurations and constructors raise that are not Keras's own.
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise unsupported_option_error("no get_config", f"{where} ({said})", error) from error
    return made


def _layers(model: Any) -> list[Any]:
    layers = model._flatten_layers()
    return [each for each in layers if not isinstance(each, tf_keras.layers.InputLayer)]


def _inferred_input(model: Any) -> Any:
    """The input of a Sequential that its first batch has built; None where it has its own."""
    if model._is_graph_network or not model.built:
        return None
    (given,) = model.inputs
    (name,) = model.input_names
    return tf_keras.Input(batch_shape=given.shape, dtype=given.dtype, name=name)


def _zeros(each: Any) -> Any:
    return tf.zeros([size or 1 for size in each.shape.as_list()], each.dtype)


def _copy_trainable_flags(model: Any, made: Any, where: str) -> None:
    """Freezes the layers that are frozen, as they were when the model was compiled."""
    compiled = getattr(model, "_compiled_trainable_state", {})
    layers, twins = _layers(model), _layers(made)
    for mine, other in zip(layers, twins, strict=True):
        other.trainable = compiled.get(mine, mine.trainable)
        if len(mine._callable_losses) != len(other._callable_losses):
            raise unsupported_option_error("add_loss of a function", f"{where} ({mine.name})")
