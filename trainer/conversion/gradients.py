"""Optimizers that average gradients over the replicas, in code that does not know of any."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.tpu import tpu_function, tpu_optimizer

from trainer.distribution.cross_shard import CrossShardOptimizer, cross_replica_sum
from trainer.model import patching

logger = logging.getLogger("tensorflow.trainer")

_SUM = "CrossReplicaSum"
_REDUCING = (CrossShardOptimizer, tpu_optimizer.CrossShardOptimizer)
_METHODS = (_COMPUTE, _APPLY) = ("compute_gradients", "apply_gradients")
_Method = Callable[..., Any]


@contextmanager
def average_gradients() -> Iterator[None]:
    """Within it each optimizer of tf.compat.v1.train or tf_keras applies the replicas' mean.

    Gradients are averaged as soon as `compute_gradients` has them, so that what is done to them
    afterwards, such as clipping by their norm, is done to those of the whole batch, as without
    replicas. Gradients from elsewhere, as from tf.gradients, are averaged when they are applied.
    An optimizer in a CrossShardOptimizer is left to that one.

    It holds for the whole process: enter it around the call of one model_fn.
    """
    inside = _Inside()
    v1 = tf.compat.v1.train.Optimizer
    methods: list[tuple[type, dict[str, _Method]]] = [
        (kind, {name: inside.reducing(getattr(kind, name)) for name in _METHODS})
        for kind in _REDUCING
    ]
    for kind in (v1, *_keras_optimizers()):
        methods.append((kind, {_APPLY: inside.applying(getattr(kind, _APPLY))}))
    methods.append((v1, {_COMPUTE: inside.computing(getattr(v1, _COMPUTE))}))
    with ExitStack() as stack:
        for kind, values in methods:
            stack.enter_context(patching.patched_attributes(kind, values))
        yield


def _keras_optimizers() -> list[type]:
    import tf_keras

    return [tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer]


class _Inside:
    """Methods that know whether another one, further out, is at work already."""

    def __init__(self) -> None:
        self._depth = 0

    @contextmanager
    def _deeper(self) -> Iterator[bool]:
        self._depth += 1
        try:
            yield self._depth == 1
        finally:
            self._depth -= 1

    def reducing(self, method: _Method) -> _Method:
        """One that reduces by itself."""

        def call(*arguments: Any, **named: Any) -> Any:
            with self._deeper():
                return method(*arguments, **named)

        return call

    def computing(self, method: _Method) -> _Method:
        """One whose result is averaged."""

        def call(*arguments: Any, **named: Any) -> Any:
            with self._deeper() as is_outermost:
                pairs = method(*arguments, **named)
            return [(_mean(each), of) for each, of in pairs] if is_outermost else pairs

        return call

    def applying(self, method: _Method) -> _Method:
        """One whose gradients are averaged, where they are not yet."""

        def call(optimizer: Any, grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
            with self._deeper() as is_outermost:
                pairs = list(grads_and_vars)
                if is_outermost:
                    pairs = _averaged(pairs)
                return method(optimizer, pairs, *arguments, **named)

        return call


def _averaged(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    late = [gradient is not None and not _is_summed(gradient) for gradient, _ in pairs]
    if any(late):
        logger.info(
            "%d gradients are averaged over the replicas when they are applied: they are not from "
            "an optimizer's compute_gradients, and clipping, if any, was done by each replica.",
            sum(late),
        )
    return [
        (_mean(gradient) if is_late else gradient, variable)
        for (gradient, variable), is_late in zip(pairs, late, strict=True)
    ]


def _mean(gradient: Any) -> Any:
    replicas = tpu_function.get_tpu_context().number_of_shards or 1
    if gradient is None or replicas == 1:
        return gradient
    # A sum over replicas is one of dense tensors; so it is in CrossShardOptimizer.
    return cross_replica_sum(tf.convert_to_tensor(gradient)) * (1.0 / replicas)


def _is_summed(gradient: Any) -> bool:
    """Whether a sum over replicas is among what a gradient is computed from."""
    tensors = gradient if isinstance(gradient, tf.IndexedSlices) else None
    waiting = [(tensors.values if tensors is not None else gradient).op]
    seen = set(waiting)
    while waiting:
        operation = waiting.pop()
        if operation.type == _SUM:
            return True
        for each in operation.inputs:
            if each.op not in seen:
                seen.add(each.op)
                waiting.append(each.op)
    return False
