"""Access to the optimizer of a tf_keras model that uses an optimizer of tf.compat.v1.train.

tf_keras wraps such an optimizer in a TFOptimizer, which is model.optimizer. In this module
"wrapper" means this TFOptimizer.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from trainer.distribution.cross_shard import CrossShardOptimizer
from trainer.keras_internals import TFOptimizer
from trainer.tensorflow_internals import (
    find_private_attribute,
    func_graph_from_py_func,
    get_optimizer_variable_key,
    get_private_attribute,
    tpu_optimizer,
)

# If the name of an optimizer's attribute has one of these suffixes, the attribute holds a tensor of
# the graph in which the optimizer last built its ops.
_GRAPH_TENSOR_SUFFIXES = ("_t", "_tensor")
_MEAN = tf.compat.v1.losses.Reduction.MEAN
# The CrossShardOptimizer classes of tpuserve and of TensorFlow, each with the name of the attribute
# that holds the wrapped optimizer.
_CROSS_SHARD_OPTIMIZERS = (
    (CrossShardOptimizer, "_optimizer"),
    (tpu_optimizer.CrossShardOptimizer, "_opt"),
)
_STATE_ATTRIBUTES = ("_slots", "_non_slot_dict", "_deferred_slot_restorations")


def is_tf_optimizer(optimizer: Any) -> bool:
    """Return whether an optimizer is a TFOptimizer: it wraps an optimizer of tf.compat.v1.train."""
    return isinstance(optimizer, TFOptimizer)


def unsupported_options(wrapper: Any) -> Iterable[tuple[str, str]]:
    """Find the options of an optimizer that an estimator does not support."""
    optimizer = unwrap(wrapper)
    for name, value in vars(optimizer).items():
        if isinstance(value, tf.compat.v1.train.Optimizer):
            yield "optimizer in an optimizer", type(optimizer).__name__
        elif _is_symbolic(value) and not name.endswith(_GRAPH_TENSOR_SUFFIXES):
            place = f"{name.lstrip('_')} of {type(optimizer).__name__}"
            yield "tensor as hyperparameter", place


def unwrap(wrapper: Any) -> Any:
    """Return the optimizer of tf.compat.v1.train inside a TFOptimizer.

    If the wrapped optimizer is a CrossShardOptimizer that computes means, return the optimizer
    inside the CrossShardOptimizer, because the estimator itself computes the means of the gradients
    over the replicas.
    """
    optimizer = wrapper.optimizer
    for optimizer_type, attribute in _CROSS_SHARD_OPTIMIZERS:
        if not isinstance(optimizer, optimizer_type):
            continue
        if get_private_attribute(optimizer, "_reduction") == _MEAN:
            optimizer = get_private_attribute(optimizer, attribute)
    return optimizer


def recreate(wrapper: Any, get_value: Callable[[Any], Any]) -> Any:
    """Create an eager copy of the optimizer in a TFOptimizer, with its settings but not its state.

    Args:
      wrapper: the TFOptimizer of a model that was built without eager execution.
      get_value: takes a variable of the model's graph and returns its value.
    """
    optimizer = unwrap(wrapper)
    recreated = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if name.startswith("_self_"):
            # Skip the attributes in which TensorFlow's checkpointing keeps its state. TensorFlow
            # creates them again when it needs them.
            continue
        if isinstance(value, tf.Variable):
            value = get_value(value)
        recreated.__dict__[name] = None if _is_symbolic(value) else value
    recreated.__dict__.update({name: {} for name in _STATE_ATTRIBUTES})
    return recreated


def create_slots(wrapper: Any, variables: Sequence[Any]) -> None:
    """Create the optimizer's slot variables, as its first step would."""
    if wrapper.__dict__.get("_is_built_for_steps"):
        return
    trained = [variable for variable in variables if variable.dtype.is_floating]

    def step() -> None:
        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in trained]
        apply_step(wrapper, zip(zeros, trained, strict=True))

    # Trace a step without running it. Tracing creates the optimizer's variables as eager variables.
    func_graph_from_py_func("first_step", step, (), {})
    object.__setattr__(wrapper, "_is_built_for_steps", True)


def apply_step(wrapper: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Run one step of the optimizer, and increment the wrapper's count of steps."""
    unwrap(wrapper).apply_gradients(pairs, global_step=wrapper.iterations)


def named_variables(wrapper: Any, trained: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the optimizer's variables as a list of (path, tf.Variable).

    A path is a name for checkpoints, such as "dense/kernel/momentum".
    """
    names = [variable.name.partition(":")[0] for variable in trained]
    return [
        (f"{names[number]}/{name}" if number >= 0 else name, variable)
        for (name, number), variable in state_variables(wrapper, trained).items()
    ]


def state_variables(wrapper: Any, trained: Sequence[Any]) -> dict[tuple[str, int], Any]:
    """Return the optimizer's variables, with keys that identify them.

    Returns:
      For slot variables: (name of the slot, index in `trained`) → variable. For other variables,
      such as "iterations": (name of the variable, -1) → variable.
    """
    optimizer = unwrap(wrapper)
    slots = {
        (slot, number): by_key[get_optimizer_variable_key(variable)]
        for slot, by_key in get_private_attribute(optimizer, "_slots").items()
        for number, variable in enumerate(trained)
        if get_optimizer_variable_key(variable) in by_key
    }
    non_slots = get_private_attribute(optimizer, "_non_slot_dict")
    others = {(name, -1): variable for (name, _), variable in non_slots.items()}
    return {("iterations", -1): wrapper.iterations, **slots, **others}


def describe_optimizer(wrapper: Any) -> str:
    """Describe the optimizer for the log by its class and learning rate.

    For example: "MomentumOptimizer(0.1)".
    """
    optimizer = unwrap(wrapper)
    rate = find_private_attribute(optimizer, "_learning_rate")
    rate = find_private_attribute(optimizer, "_lr", rate)
    text = f"{float(rate):g}" if isinstance(rate, (int, float)) else type(rate).__name__
    return f"{type(optimizer).__name__}({text})"


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and tf.is_symbolic_tensor(value)
