"""Clones tf_keras models that were built without eager execution, as in programs of TensorFlow 1.

The weights of such a model live in the session of a graph, and its steps are ops of this graph. An
estimator cannot use the model itself.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from tpuserve.errors import InvalidSetting
from trainer.keras import tf_optimizer
from trainer.keras.model.tracing import eager_mode
from trainer.keras.model.unsupported_options import unsupported_option_error
from trainer.keras.tf_keras_adapter import ADAPTER
from trainer.keras_internals import (
    find_private_attribute,
    get_private_attribute,
    set_private_attribute,
)


class GraphOptimizerState:
    """The settings and the state of a model's optimizer, read from the session of its graph.

    Attributes:
      values: key of a variable, as in the result of `state_variables` → the variable's value, an
        array.
    """

    def __init__(self, model: Any) -> None:
        self._optimizer = model.optimizer
        variables = state_variables(model)
        values = tf_keras.backend.batch_get_value(list(variables.values()))
        self.values = dict(zip(variables, values, strict=True))
        if tf_optimizer.is_tf_optimizer(self._optimizer):
            attributes = vars(tf_optimizer.unwrap(self._optimizer)).values()
            variables_by_id = {
                id(value): value for value in attributes if isinstance(value, tf.Variable)
            }
            self._attribute_values = dict(
                zip(
                    variables_by_id,
                    tf_keras.backend.batch_get_value(list(variables_by_id.values())),
                    strict=True,
                )
            )
        else:
            # If a hyperparameter is a schedule or a function, add it unchanged. get_config would
            # replace a function by its current value, and a schedule by its configuration.
            schedule_class = tf_keras.optimizers.schedules.LearningRateSchedule
            hyperparameters = get_private_attribute(self._optimizer, "_hyper")
            dynamic = {
                name: value
                for name, value in hyperparameters.items()
                if isinstance(value, schedule_class) or _is_function(value)
            }
            self._config = {**self._optimizer.get_config(), **dynamic}

    def recreate(self) -> Any:
        """Create an eager copy of the model's optimizer, with its settings but not its state."""
        if tf_optimizer.is_tf_optimizer(self._optimizer):
            return tf_optimizer.recreate(
                self._optimizer, lambda variable: self._attribute_values[id(variable)]
            )
        return type(self._optimizer).from_config(dict(self._config))


def unsupported_options(optimizer: Any) -> Iterator[tuple[str, str]]:
    """Find the options of an optimizer that an estimator does not support."""
    if tf_optimizer.is_tf_optimizer(optimizer):
        yield from tf_optimizer.unsupported_options(optimizer)
        return
    if not isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
        yield "another optimizer", type(optimizer).__name__
        return
    for name, value in get_private_attribute(optimizer, "_hyper").items():
        if isinstance(value, tf.Tensor):
            yield "tensor as hyperparameter", f"{name} of {type(optimizer).__name__}"


def state_variables(model: Any) -> dict[tuple[str, int], Any]:
    """Return the existing variables of a model's optimizer, with keys that identify them.

    A model and its clone have the same keys, so that values can be copied between them.

    Returns:
      ("", index in optimizer.weights) → variable. For an optimizer of tf.compat.v1.train, the
      result of `tf_optimizer.state_variables`.
    """
    optimizer = model.optimizer
    if tf_optimizer.is_tf_optimizer(optimizer):
        trained = find_private_attribute(model, "_collected_trainable_weights")
        return tf_optimizer.state_variables(
            optimizer, model.trainable_weights if trained is None else trained
        )
    return {("", number): variable for number, variable in enumerate(optimizer.weights)}


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, tf.Variable)


def build_compile_args(model: Any) -> dict[str, Any]:
    """Return the arguments, except the optimizer, with which to compile the eager clone of a model.

    If the model's outputs are known, the result contains the losses and metrics that Keras has
    assigned to each output.
    """
    if not get_private_attribute(model, "_is_compiled"):
        return {
            "loss": model.loss,
            "loss_weights": model.loss_weights,
            "metrics": get_private_attribute(model, "_compile_metrics"),
            "weighted_metrics": get_private_attribute(model, "_compile_weighted_metrics"),
        }
    endpoints = get_private_attribute(model, "_training_endpoints")
    metrics = get_private_attribute(model, "_per_output_metrics")
    weighted_metrics = get_private_attribute(model, "_per_output_weighted_metrics")
    return {
        "loss": _assign_to_outputs(model, model.loss_functions),
        "loss_weights": _assign_to_outputs(model, [endpoint.loss_weight for endpoint in endpoints]),
        "metrics": _assign_to_outputs(model, _copy_metrics(metrics)),
        "weighted_metrics": _assign_to_outputs(model, _copy_metrics(weighted_metrics)),
        # With `from_serialized`, compile() does not add the names of the outputs to the names of
        # the metrics. The names of these metrics contain the names of the outputs already.
        "from_serialized": True,
    }


def _assign_to_outputs(model: Any, values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    outputs = find_private_attribute(model, "_nested_outputs")
    if isinstance(outputs, Mapping):
        # Sort the output names, because tf.nest has flattened the dict of outputs in the order of
        # its sorted keys, and the values are in the same order.
        return dict(zip(sorted(outputs), values, strict=True))
    return list(values)


def _copy_metrics(metrics_of_outputs: Sequence[Mapping[str, Any] | None]) -> list[list[Any]]:
    return [
        [_copy_metric(name, metric) for name, metric in (metrics or {}).items()] or [None]
        for metrics in metrics_of_outputs
    ]


def _copy_metric(name: str, metric: Any) -> Any:
    """Copy a metric, without its state, under another name."""
    if type(metric) is tf_keras.metrics.MeanMetricWrapper:
        # Do not use get_config for a MeanMetricWrapper: it returns only the name of the function
        # that the metric calls.
        return tf_keras.metrics.MeanMetricWrapper(
            get_private_attribute(metric, "_fn"),
            name=name,
            dtype=metric.dtype,
            **get_private_attribute(metric, "_fn_kwargs"),
        )
    copy = type(metric).from_config(metric.get_config())
    set_private_attribute(copy, "_name", name)
    return copy


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
        optimizer_state = GraphOptimizerState(model)
    with eager_mode(), tf_keras.utils.custom_object_scope(dict(custom_objects or {})):
        clone = _clone_layers(model, label)
        if model.built:
            _copy_trainable_flags(model, clone, label)
            clone.set_weights(values)
        clone.compile(optimizer_state.recreate(), **build_compile_args(model))
        if model.built:
            ADAPTER.build_optimizer(clone)
            for key, variable in state_variables(clone).items():
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
        state = {key: variable.numpy() for key, variable in state_variables(clone).items()}
    with _use_graph(model):
        # Build the model's training function, but do not call it. Building it creates the
        # optimizer's variables.
        get_private_attribute(model, "_make_train_function")()
        slots = state_variables(model)
        assignments = [(slots[key], value) for key, value in state.items()]
        tf_keras.backend.batch_set_value([*zip(model.weights, values, strict=True), *assignments])


def _unsupported_options(model: Any) -> Iterator[tuple[str, str]]:
    if not getattr(model, "optimizer", None):
        yield "not compiled", ""
        return
    strategy = get_private_attribute(model, "_distribution_strategy")
    if strategy is not None:
        yield "distribute strategy", type(strategy).__name__
    yield from unsupported_options(model.optimizer)


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
