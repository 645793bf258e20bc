"""Checks the fields of an EstimatorSpec or a TPUEstimatorSpec."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.execution import step_graph
from trainer.tensorflow_internals import model_utils


def is_keras_metric(value: Any) -> bool:
    """Return whether a value has the methods of a tf_keras Metric, without importing Keras."""
    return all(hasattr(value, name) for name in ("update_state", "result", "updates"))


def value_update_pairs(metrics: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Convert metrics to pairs, as name → (value, update op).

    Args:
      metrics: name → metric: a pair (value, update op), or a tf_keras Metric on which model_fn has
        called update_state.
    """
    return {
        name: _to_pair(metric) if is_keras_metric(metric) else metric
        for name, metric in metrics.items()
    }


def _to_pair(metric: Any) -> tuple[Any, Any]:
    keys = tf.compat.v1.GraphKeys
    # A session initialises local variables.
    for collection in (keys.LOCAL_VARIABLES, keys.METRIC_VARIABLES):
        known = {variable.ref() for variable in tf.compat.v1.get_collection(collection)}
        for variable in metric.variables:
            if variable.ref() not in known:
                tf.compat.v1.add_to_collection(collection, variable)
    updates = metric.updates
    return metric.result(), updates[0] if len(updates) == 1 else tf.group(*updates)


def validate_train_op(owner: str, value: Any) -> None:
    """Check that a train_op is an op or a tensor of the default graph, or None."""
    if value is not None:
        _check_operation(f"{owner} train_op", value)


def validate_scalar_loss(owner: str, value: Any) -> Any:
    """Check a loss, and return it as a scalar; return None if there is no loss.

    Raises:
      InvalidSetting: the loss has several elements or none, or belongs to another graph.
    """
    if value is None:
        return None
    _check_tensor(f"{owner} loss", value)
    if value.shape.num_elements() not in (None, 1):
        raise InvalidSetting(
            f"{owner} loss has shape {value.shape.as_list()}. Give a scalar, such as "
            f"tf.reduce_mean of it."
        )
    return value if value.shape.rank in (0, None) else tf.reshape(value, [])


def validate_predictions(owner: str, value: Any) -> None:
    """Check that predictions are tensors of the default graph, or None."""
    if isinstance(value, Mapping):
        for name, tensor in value.items():
            _check_tensor(f"{owner} predictions[{name!r}]", tensor)
    elif value is not None:
        _check_tensor(f"{owner} predictions", value)


def validate_export_outputs(owner: str, value: Any, predicted: Any) -> dict[str, Any]:
    """Check export outputs, and return them by signature name, including the default signature."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidType(f"{owner} export_outputs is {value!r}. Give a dict, name → output.")
    if value is not None and not value:
        raise InvalidSetting(
            f"{owner} export_outputs is empty, so no signature would be left. Give at least one "
            f"output, or None to export the predictions."
        )
    for name, output in (value or {}).items():
        if not isinstance(output, model_utils.ExportOutput):
            raise InvalidType(
                f"{owner} export_outputs[{name!r}] is {output!r}. Give a trainer.PredictOutput, "
                f"ClassificationOutput or RegressionOutput."
            )
    try:
        outputs = None if value is None else dict(value)
        return dict(model_utils.get_export_outputs(outputs, predicted))
    except ValueError as error:
        raise InvalidSetting(f"{owner} export_outputs: {error}") from error


def validate_metric_ops(owner: str, value: Any) -> dict[str, Any]:
    """Check the metrics of an evaluation, and return them as name → (value, update op).

    Args:
      value: name → metric; None for no metrics. A metric is a pair (value, update op) or a Keras
        metric. The value of a pair may be a nested structure of tensors, such as a tuple.

    Raises:
      InvalidSetting: a Keras metric was never updated, or a tensor belongs to another graph.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidType(
            f"{owner} eval_metric_ops is {value!r}. Give a dict, name → (value, update op)."
        )
    for name, metric in value.items():
        title = f"{owner} eval_metric_ops[{name!r}]"
        if is_keras_metric(metric):
            if not metric.updates:
                raise InvalidSetting(
                    f"{title} is a Keras metric that was never updated. Please call "
                    f"update_state(...) on it in model_fn."
                )
        elif not isinstance(metric, tuple) or len(metric) != 2:
            raise InvalidType(f"{title} is {metric!r}. Give a pair (value, update op).")
        else:
            for part in tf.nest.flatten(metric):
                _check_operation(title, part)
    return value_update_pairs(value)


def validate_hooks(title: str, value: Iterable[Any] | None) -> tuple[Any, ...]:
    """Check that a list contains only SessionRunHooks, and return it as a tuple.

    Args:
      value: the hooks, or None. An iterator is consumed, so the caller must use the returned tuple.
    """
    if value is not None and not isinstance(value, Iterable):
        raise InvalidType(
            f"{title} is {value!r}. Give a list of tf.compat.v1.train.SessionRunHooks, and pass "
            f"the arguments after hooks by name, for example steps=."
        )
    hooks = tuple(value or ())
    for hook in hooks:
        if not isinstance(hook, tf.compat.v1.train.SessionRunHook):
            raise InvalidType(
                f"{title} holds {hook!r}. Give tf.compat.v1.train.SessionRunHooks: all hooks "
                f"must be SessionRunHook instances."
            )
    return hooks


def validate_scaffold(owner: str, value: Any) -> Any:
    """Check that a value is a Scaffold, and return it; return a new Scaffold for None."""
    if value is None:
        return tf.compat.v1.train.Scaffold()
    if not isinstance(value, tf.compat.v1.train.Scaffold):
        raise InvalidType(f"{owner} scaffold is {value!r}. Give a tf.compat.v1.train.Scaffold.")
    return value


def _check_tensor(title: str, value: Any) -> None:
    if not tf.is_tensor(value):
        raise InvalidType(f"{title} is {value!r}, which is not a tensor. Give a Tensor.")
    _check_default_graph(title, value)


def _check_operation(title: str, value: Any) -> None:
    if not (tf.is_tensor(value) or isinstance(value, (tf.Operation, tf.Variable))):
        raise InvalidType(f"{title} is {value!r}. Give a Tensor or an Operation.")
    _check_default_graph(title, value)


def _check_default_graph(title: str, value: Any) -> None:
    # Allow tensors of the default graph. If that graph is the body of a function, such as a TPU
    # computation, also allow tensors of the graphs around it, which the function can capture.
    # The default graph is that of the program if model_fn has left the step.
    allowed = []
    for graph in (tf.compat.v1.get_default_graph(), step_graph.current_step()):
        while graph is not None:
            allowed.append(graph)
            graph = getattr(graph, "outer_graph", None)
    for tensor in tf.nest.flatten(value, expand_composites=True):
        graph = _get_graph(tensor)
        if graph is not None and not any(graph is allowed_graph for allowed_graph in allowed):
            raise InvalidSetting(
                f"{title}, {tensor.name}, belongs to another graph than the default one. Build it "
                f"inside model_fn."
            )


def _get_graph(value: Any) -> Any:
    # Return None for an eager tensor, whose attribute `graph` raises an error.
    try:
        return getattr(value, "graph", None)
    except AttributeError:
        return None


def validate_listeners(title: str, value: Iterable[Any] | None) -> tuple[Any, ...]:
    """Check that a list contains only CheckpointSaverListeners, and return it as a tuple.

    Args:
      value: the listeners, or None. An iterator is consumed, so the caller must use the returned
        tuple.
    """
    listeners = tuple(value or ())
    for listener in listeners:
        if not isinstance(listener, tf.compat.v1.train.CheckpointSaverListener):
            raise InvalidType(
                f"{title} holds {listener!r}. Give CheckpointSaverListener instances."
            )
    return listeners
