"""Optimizers of tf.compat.v1.train in models of tf_keras, which wraps them as TFOptimizer."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tf_keras.src.optimizers.optimizer_v1 import TFOptimizer

from trainer.distribution.cross_shard import CrossShardOptimizer
from trainer.tensorflow_internals import func_graph_from_py_func, get_optimizer_variable_key

# What an optimizer keeps of the graph in which it has made a step.
_OF_GRAPH = ("_t", "_tensor")
_MEAN = tf.compat.v1.losses.Reduction.MEAN
_STATE = ("_slots", "_non_slot_dict", "_deferred_slot_restorations")


def is_tf_optimizer(optimizer: Any) -> bool:
    """Whether a model's optimizer is one of tf.compat.v1.train."""
    return isinstance(optimizer, TFOptimizer)


def unsupported_options(optimizer: Any) -> Iterable[tuple[str, str]]:
    """Options of `trainer.keras.model.unsupported_options` that it has,
    each with where it has it.
    """
    own = unwrap(optimizer)
    for name, value in vars(own).items():
        if isinstance(value, tf.compat.v1.train.Optimizer):
            yield "optimizer in an optimizer", type(own).__name__
        elif _is_symbolic(value) and not name.endswith(_OF_GRAPH):
            yield "tensor as hyperparameter", f"{name.lstrip('_')} of {type(own).__name__}"


def unwrap(optimizer: Any) -> Any:
    """The optimizer of tf.compat.v1.train, which gets gradients that are means already."""
    own = optimizer.optimizer
    while isinstance(own, CrossShardOptimizer) and own._reduction == _MEAN:
        own = own._optimizer
    return own


def recreate(optimizer: Any, value_of: Callable[[Any], Any]) -> Any:
    """The same optimizer of tf.compat.v1.train with no state, to be used eagerly.

    Args:
      optimizer: as it is in a model of a graph.
      value_of: gives the value of a variable of that graph.
    """
    own = unwrap(optimizer)
    made = object.__new__(type(own))
    for name, value in vars(own).items():
        if name.startswith("_self_"):
            # What a checkpoint of it would have; made when it is asked for.
            continue
        if isinstance(value, tf.Variable):
            value = value_of(value)
        made.__dict__[name] = None if _is_symbolic(value) else value
    made.__dict__.update({name: {} for name in _STATE})
    return made


def create_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes the state for variables, as the first step does."""
    if optimizer.__dict__.get("_is_built_for_steps"):
        return
    trained = [each for each in variables if each.dtype.is_floating]

    def step() -> None:
        apply_step(optimizer, [(tf.zeros(each.shape, each.dtype), each) for each in trained])

    # State is made outside of any function, and nothing is run of this one.
    func_graph_from_py_func("first_step", step, (), {})
    object.__setattr__(optimizer, "_is_built_for_steps", True)


def apply_step(optimizer: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Makes a step."""
    unwrap(optimizer).apply_gradients(pairs, global_step=optimizer.iterations)


def named_variables(optimizer: Any, trained: Sequence[Any]) -> list[tuple[str, Any]]:
    """Path and variable of all that it keeps.

    The paths are not those of TensorFlow, which count up whatever a process has made before.
    """
    names = [each.name.partition(":")[0] for each in trained]
    return [
        (f"{names[number]}/{name}" if number >= 0 else name, variable)
        for (name, number), variable in state_variables(optimizer, trained).items()
    ]


def state_variables(optimizer: Any, trained: Sequence[Any]) -> dict[tuple[str, int], Any]:
    """What it is kept for → variable: a slot and the number of its variable, or a name and -1."""
    own = unwrap(optimizer)
    found = {
        (slot, number): by_key[get_optimizer_variable_key(each)]
        for slot, by_key in own._slots.items()
        for number, each in enumerate(trained)
        if get_optimizer_variable_key(each) in by_key
    }
    others = {(name, -1): each for (name, _), each in own._non_slot_dict.items()}
    return {("iterations", -1): optimizer.iterations, **found, **others}


def describe_optimizer(optimizer: Any) -> str:
    """Its name, and its learning rate."""
    own = unwrap(optimizer)
    rate = getattr(own, "_lr", getattr(own, "_learning_rate", None))
    shown = f"{float(rate):g}" if isinstance(rate, (int, float)) else type(rate).__name__
    return f"{type(own).__name__}({shown})"


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and tf.is_symbolic_tensor(value)
