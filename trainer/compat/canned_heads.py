"""What the heads of the package tensorflow-estimator lack: specs for a TPU, and plain errors."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tpuserve.errors import InvalidSetting
from tpuserve.graph.graph_walk import HOST_ATTRIBUTE
from trainer.model.spec import EstimatorSpec, TPUEstimatorSpec
from trainer.tensorflow_internals import eager_context, get_private_attribute, tpu_function


@dataclass(frozen=True)
class HeadTPUEstimatorSpec(TPUEstimatorSpec):
    """A TPUEstimatorSpec that stays one in a TPU computation.

    The method create_estimator_spec of a head converts its spec by `as_estimator_spec`.
    """

    # MultiHead asks the specs of its heads for metrics in training too.
    eval_metric_ops: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if _is_in_tpu_computation() and isinstance(self.predictions, Mapping):
            for prediction in self.predictions.values():
                _run_strings_on_host(prediction)

    def as_estimator_spec(self) -> EstimatorSpec:
        """Return an EstimatorSpec; inside of a TPU computation, this spec itself."""
        if _is_in_tpu_computation():
            return self  # type: ignore[return-value]
        return super().as_estimator_spec()


def _is_in_tpu_computation() -> bool:
    return tpu_function.get_tpu_context().number_of_shards is not None


def _run_strings_on_host(tensor: Any) -> None:
    """Mark the ops that compute a string as outside compilation: a TPU has no strings."""
    if tensor.dtype != tf.string or tensor.op.type == "Placeholder":
        return
    set_attribute = get_private_attribute(tensor.op, "_set_attr")
    set_attribute(HOST_ATTRIBUTE, attr_value_pb2.AttrValue(s=b"strings"))
    for source in tensor.op.inputs:
        _run_strings_on_host(source)


def create_eval_metrics_tuple(
    update_metrics: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the eval_metrics of a head: a function for the host, and the tensors that it takes.

    Replaces base_head.create_eval_metrics_tuple, which passes on neither the tensors in a dict of
    features nor metrics of the host's graph.

    Args:
      update_metrics: a method of a head.
      arguments: its arguments, by name.
    """
    on_device = {name: value for name, value in arguments.items() if name != "eval_metrics"}
    flat = tf.nest.flatten(on_device, expand_composites=True)
    tensors = {str(index): part for index, part in enumerate(flat) if tf.is_tensor(part)}

    def update_on_host(**host_tensors: Any) -> Any:
        parts = [host_tensors.get(str(index), part) for index, part in enumerate(flat)]
        on_host = tf.nest.pack_sequence_as(on_device, parts, expand_composites=True)
        metrics = arguments["eval_metrics"]
        return update_metrics(eval_metrics=metrics, **on_host)

    return update_on_host, tensors


def check_head_names(heads: Sequence[Any]) -> None:
    """Check that several heads have names of their own.

    Raises:
      InvalidSetting: there is no head, a head has no name, or two have the same.
    """
    names = [head.name for head in heads or ()]
    if not names:
        raise InvalidSetting("a multi-head got no heads. Give at least one.")
    if None in names or len(set(names)) < len(names):
        raise InvalidSetting(
            f"a multi-head got heads with the names {names}. Give each head a name of its own."
        )


def _checking_logits(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def check_logits(logits: Any, expected: Any) -> Any:
        size = logits.shape.as_list()[-1] if logits.shape.rank else None
        if isinstance(expected, int) and size not in (None, expected):
            raise InvalidSetting(
                f"a head with {expected} logits for an example got logits of shape "
                f"{logits.shape}. Give shape [batch, {expected}]."
            )
        return original(logits, expected)

    return check_logits


def _explaining_range(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def check_range(labels: Any, n_classes: int, message: str | None = None) -> Any:
        return original(
            labels,
            n_classes,
            message
            or f"A head with {n_classes} classes got a label that is not from 0 to "
            f"{n_classes - 1}; a class that is not in label_vocabulary counts as -1. Correct the "
            f"labels, or give n_classes or label_vocabulary for all of them.",
        )

    return check_range


def _checking_names(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def initialize(self: Any, heads: Sequence[Any], head_weights: Any = None) -> None:
        check_head_names(heads)
        original(self, heads, head_weights)

    return initialize


class _TablesOnHost:
    """TensorFlow's lookup_ops, which builds tables of strings outside of a TPU computation."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def index_to_string_table_from_tensor(self, *arguments: Any, **options: Any) -> Any:
        with tf.init_scope():
            return self._original.index_to_string_table_from_tensor(*arguments, **options)


def _taking_new_optimizers(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let the classes of TensorFlow 2 take a tf.keras.optimizers.Optimizer of any version."""
    optimizers = tf.keras.optimizers

    def is_new(value: Any) -> bool:
        is_legacy = isinstance(value, optimizers.legacy.Optimizer)
        return isinstance(value, optimizers.Optimizer) and not is_legacy

    @functools.wraps(original)
    def get_optimizer(opt: Any, learning_rate: float | None = None) -> Any:
        made = opt() if callable(opt) and not isinstance(opt, str) else opt
        if isinstance(made, tf.compat.v1.train.Optimizer):
            raise InvalidSetting(
                f"an estimator of TensorFlow 2 got {type(made).__name__}, an optimizer of "
                f"TensorFlow 1. Give one of tf.keras.optimizers.legacy, or take the class of "
                f"tf.compat.v1.estimator."
            )
        if is_new(made):
            # Its settings are in variables, which can be read eagerly.
            with eager_context.eager_mode():
                made = tf.keras.__internal__.optimizers.convert_to_legacy_optimizer(
                    opt() if callable(opt) else opt
                )
        return original(made, learning_rate)

    return get_optimizer


# Module below tensorflow_estimator.python.estimator → its functions, and what replaces them.
_REPLACEMENTS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "canned.head": {
        "_assert_range": _explaining_range,
        "_check_logits_final_dim": _checking_logits,
        "lookup_ops": _TablesOnHost,
    },
    "canned.optimizers": {"get_optimizer_instance_v2": _taking_new_optimizers},
    "head.binary_class_head": {"lookup_ops": _TablesOnHost},
    "head.multi_class_head": {"lookup_ops": _TablesOnHost},
    "head.base_head": {
        "check_label_range": _explaining_range,
        "check_logits_final_dim": _checking_logits,
        "create_eval_metrics_tuple": lambda original: create_eval_metrics_tuple,
    },
}


def extend(module: Any) -> None:
    """Replace the functions of a module of heads that this module has better ones for.

    Args:
      module: a module of tensorflow_estimator, as soon as it is imported.
    """
    name = module.__name__.removeprefix("tensorflow_estimator.python.estimator.")
    for function, replace in _REPLACEMENTS.get(name, {}).items():
        setattr(module, function, replace(getattr(module, function)))
    if name == "head.multi_head":
        module.MultiHead.__init__ = _checking_names(module.MultiHead.__init__)
