"""Patches optimizers so that they average gradients over the replicas."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec
from trainer.distribution.cross_shard import CrossShardOptimizer, cross_replica_sum
from trainer.model import patching
from trainer.tensorflow_internals import tpu_function, tpu_optimizer

logger = logging.getLogger("tensorflow.trainer")

# Optimizers that sum gradients over the replicas themselves. While one of their methods runs, the
# patched methods do not average, so that the gradients are not combined twice.
_REDUCING_OPTIMIZERS = (CrossShardOptimizer, tpu_optimizer.CrossShardOptimizer)
_METHODS = (_COMPUTE, _APPLY) = ("compute_gradients", "apply_gradients")
_Method = Callable[..., Any]

# The kinds of ops whose outputs are the same on all replicas.
_SAME_ON_ALL_REPLICAS = (OpKind.CONSTANT, OpKind.VARIABLE_HANDLE)


@contextmanager
def average_gradients() -> Iterator[None]:
    """Make optimizers apply the mean of the replicas' gradients, inside a with block.

    The block patches the optimizer classes of tf.compat.v1.train and tf_keras.

    The patch affects the whole process, so use the block only around the call of one model_fn.
    """
    patch = _OptimizerPatch()
    v1 = tf.compat.v1.train.Optimizer
    methods: list[tuple[type, dict[str, _Method]]] = [
        (
            optimizer_type,
            {name: patch.wrap_reducing(getattr(optimizer_type, name)) for name in _METHODS},
        )
        for optimizer_type in _REDUCING_OPTIMIZERS
    ]
    for optimizer_type in (v1, *_keras_optimizers()):
        methods.append(
            (optimizer_type, {_APPLY: patch.wrap_apply(getattr(optimizer_type, _APPLY))})
        )
    methods.append((v1, {_COMPUTE: patch.wrap_compute(getattr(v1, _COMPUTE))}))
    with ExitStack() as stack:
        for optimizer_type, values in methods:
            stack.enter_context(patching.patched_attributes(optimizer_type, values))
        yield


def _keras_optimizers() -> list[type]:
    """Return the base classes of tf_keras's optimizers, to patch their methods."""
    import tf_keras

    return [tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer]


class _OptimizerPatch:
    """Wraps methods of optimizers so that they average gradients over the replicas."""

    def __init__(self) -> None:
        self._depth = 0

    @contextmanager
    def _enter(self) -> Iterator[bool]:
        """Record that a wrapped method runs, for the duration of a with block."""
        self._depth += 1
        try:
            yield self._depth == 1
        finally:
            self._depth -= 1

    def wrap_reducing(self, method: _Method) -> _Method:
        """Wrap a method of an optimizer that sums gradients over the replicas itself."""

        def call(*arguments: Any, **named: Any) -> Any:
            with self._enter():
                return method(*arguments, **named)

        return call

    def wrap_compute(self, method: _Method) -> _Method:
        def call(*arguments: Any, **named: Any) -> Any:
            with self._enter() as is_outermost:
                pairs = method(*arguments, **named)
            if not is_outermost:
                return pairs
            return [(_average(gradient), variable) for gradient, variable in pairs]

        return call

    def wrap_apply(self, method: _Method) -> _Method:
        """Wrap apply_gradients so that it first averages gradients that are not averaged yet."""

        def call(optimizer: Any, grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
            with self._enter() as is_outermost:
                pairs = list(grads_and_vars)
                if is_outermost:
                    pairs = _average_differing(pairs)
                return method(optimizer, pairs, *arguments, **named)

        return call


def _average_differing(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Average the gradients that may differ between the replicas."""
    may_differ = [gradient is not None and _may_differ(gradient) for gradient, _ in pairs]
    if any(may_differ):
        logger.info(
            "%d gradients are averaged over the replicas when they are applied, because they do "
            "not come from an optimizer's compute_gradients; each replica clips them on its own.",
            sum(may_differ),
        )
    return [
        (_average(gradient) if differs else gradient, variable)
        for (gradient, variable), differs in zip(pairs, may_differ, strict=True)
    ]


def _average(gradient: Any) -> Any:
    replicas = tpu_function.get_tpu_context().number_of_shards or 1
    if gradient is None or replicas == 1:
        return gradient
    # Convert IndexedSlices to a dense tensor, as CrossShardOptimizer does, because CrossReplicaSum
    # accepts dense tensors only.
    return cross_replica_sum(tf.convert_to_tensor(gradient)) * (1.0 / replicas)


def _may_differ(gradient: Any) -> bool:
    """Return whether a gradient may have different values on different replicas."""
    is_sparse = isinstance(gradient, tf.IndexedSlices)
    tensors = [gradient.values, gradient.indices] if is_sparse else [gradient]
    pending = [tensor.op for tensor in tensors]
    seen = set(pending)
    while pending:
        operation = pending.pop()
        spec = op_spec(operation.type)
        if spec.is_reduction or spec.kind in _SAME_ON_ALL_REPLICAS:
            continue
        is_random = spec.kind is OpKind.COMPUTATION and operation.op_def.is_stateful
        if is_random or not operation.inputs:
            return True
        for tensor in operation.inputs:
            if tensor.op not in seen:
                seen.add(tensor.op)
                pending.append(tensor.op)
    return False
