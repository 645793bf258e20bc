"""What the parts of an EstimatorSpec and of a TPUEstimatorSpec have to be."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.tensorflow_internals import model_utils


def validate_train_op(owner: str, value: Any) -> None:
    """Refuses a train_op that is no op of this graph.

    Raises:
      InvalidType: it is neither a tensor nor an operation.
      InvalidSetting: it is of another graph.
    """
    if value is not None:
        _demand_operation(f"{owner} train_op", value)


def validate_scalar_loss(owner: str, value: Any) -> Any:
    """The loss as a scalar, where it has one element.

    Raises:
      InvalidType: it is no tensor.
      InvalidSetting: it has another number of elements, or is of another graph.
    """
    if value is None:
        return None
    _demand_tensor(f"{owner} loss", value)
    if value.shape.num_elements() not in (None, 1):
        raise InvalidSetting(
            f"{owner} loss has shape {value.shape.as_list()}. Give a scalar, such as "
            f"tf.reduce_mean of it."
        )
    return value if value.shape.rank in (0, None) else tf.reshape(value, [])


def validate_predictions(owner: str, value: Any) -> None:
    """Refuses predictions that are no tensors of this graph.

    Raises:
      InvalidType: one is no tensor.
      InvalidSetting: one is of another graph.
    """
    if isinstance(value, Mapping):
        for name, each in value.items():
            _demand_tensor(f"{owner} predictions[{name!r}]", each)
    elif value is not None:
        _demand_tensor(f"{owner} predictions", value)


def validate_export_outputs(owner: str, value: Any, predicted: Any) -> dict[str, Any]:
    """The outputs by signature name, the default one included.

    Raises:
      InvalidType: they are no dict, or one is no ExportOutput.
      InvalidSetting: there are several and none is the default, or predictions have no form as
        a signature.
    """
    if value is not None and not isinstance(value, Mapping):
        raise InvalidType(f"{owner} export_outputs is {value!r}. Give a dict, name → output.")
    for name, each in (value or {}).items():
        if not isinstance(each, model_utils.ExportOutput):
            raise InvalidType(
                f"{owner} export_outputs[{name!r}] is {each!r}. Give a trainer.PredictOutput, "
                f"ClassificationOutput or RegressionOutput."
            )
    try:
        outputs = None if value is None else dict(value)
        return dict(model_utils.get_export_outputs(outputs, predicted))
    except ValueError as error:
        raise InvalidSetting(f"{owner} export_outputs: {error}") from error


def validate_metric_ops(owner: str, value: Any) -> dict[str, Any]:
    """Metrics by name, each a pair (value, update) or a Keras metric.

    Raises:
      InvalidType: they are no dict, or one is neither.
      InvalidSetting: a Keras metric was never updated, or a tensor is of another graph.
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
            for each in metric:
                _demand_operation(title, each)
    return dict(value)


def is_keras_metric(value: Any) -> bool:
    """Whether it is a tf_keras Metric; told by what it does, which needs no import of Keras."""
    return all(hasattr(value, name) for name in ("update_state", "result", "updates"))


def validate_spec_hooks(owner: str, name: str, value: Any) -> tuple[Any, ...]:
    """Hooks as a tuple.

    Raises:
      InvalidType: one is no SessionRunHook.
    """
    return validate_hooks(f"{owner} {name}", value)


def validate_hooks(title: str, value: Sequence[Any] | None) -> tuple[Any, ...]:
    """Hooks as a tuple; the title says whose they are.

    Raises:
      InvalidType: one is no SessionRunHook, or it is no list of them.
    """
    if value is not None and not isinstance(value, Iterable):
        raise InvalidType(
            f"{title} is {value!r}. Give a list of tf.compat.v1.train.SessionRunHooks; what stands "
            f"behind it, as steps=, is given by its name."
        )
    for hook in value or ():
        if not isinstance(hook, tf.compat.v1.train.SessionRunHook):
            raise InvalidType(
                f"{title} holds {hook!r}. Give tf.compat.v1.train.SessionRunHooks: all hooks "
                f"must be SessionRunHook instances."
            )
    return tuple(value or ())


def validate_scaffold(owner: str, value: Any) -> None:
    """Refuses what is no Scaffold.

    Raises:
      InvalidType: shows what it is.
    """
    if value is not None and not isinstance(value, tf.compat.v1.train.Scaffold):
        raise InvalidType(f"{owner} scaffold is {value!r}. Give a tf.compat.v1.train.Scaffold.")


def _demand_tensor(title: str, value: Any) -> None:
    if not tf.is_tensor(value):
        raise InvalidType(f"{title} is {value!r}, which is no tensor. Give a Tensor.")
    _demand_default_graph(title, value)


def _demand_operation(title: str, value: Any) -> None:
    if not (tf.is_tensor(value) or isinstance(value, (tf.Operation, tf.Variable))):
        raise InvalidType(f"{title} is {value!r}. Give a Tensor or an Operation.")
    _demand_default_graph(title, value)


def _demand_default_graph(title: str, value: Any) -> None:
    # A function's body, such as a TPU computation, may use what the graphs around it hold.
    allowed = [tf.compat.v1.get_default_graph()]
    while getattr(allowed[-1], "outer_graph", None) is not None:
        allowed.append(allowed[-1].outer_graph)
    for each in tf.nest.flatten(value, expand_composites=True):
        graph = _graph_of(each)
        if graph is not None and not any(graph is one for one in allowed):
            raise InvalidSetting(
                f"{title}, {each.name}, is of another graph than the default one. Build it "
                f"inside model_fn."
            )


def _graph_of(value: Any) -> Any:
    # Eager tensors refuse to be asked.
    try:
        return getattr(value, "graph", None)
    except AttributeError:
        return None
