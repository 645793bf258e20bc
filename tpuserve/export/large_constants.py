"""Turns large constants in the functions of an export into variables, to save time and space.

TensorFlow copies each constant dozens of times while it saves a function, and writes one copy in
each metagraph.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve import tensorflow_internals
from tpuserve.tensorflow_internals import ResourceVariable

# The size in bytes of the smallest constant that becomes a variable. For a smaller constant, a
# variable would cost more time than it saves.
LEAST_BYTES = 1 << 20

logger = logging.getLogger(__name__)


class _ConstantVariables:
    """The variables that replace large constants; constants of equal value share a variable."""

    def __init__(self, least_bytes: int) -> None:
        self._least_bytes = least_bytes
        self._by_value: dict[tuple[Any, ...], Any] = {}

    @property
    def num_bytes(self) -> list[int]:
        return [_num_bytes(constant.shape, constant.dtype) for constant in self._by_value.values()]

    def is_large(self, shape: Any, dtype: Any) -> bool:
        """Return whether a constant is large and so must become a variable."""
        is_weight = dtype.is_floating or dtype in (tf.int8, tf.uint8)
        return bool(is_weight) and _num_bytes(shape, dtype) >= self._least_bytes

    def read(self, shape: Any, dtype: Any, content: Any, make_value: Callable[[], Any]) -> Any:
        """Add to the default graph a read of the variable that replaces a constant."""
        key = (tuple(shape), dtype, hashlib.blake2b(content).digest())
        if key not in self._by_value:
            # Create a ResourceVariable and not a tf.Variable: if a function creates a tf.Variable,
            # tf.function traces it a second time.
            with tf.init_scope():
                self._by_value[key] = ResourceVariable(
                    make_value(), trainable=False, name="constant"
                )
        return self._by_value[key].read_value()


_active: ContextVar[_ConstantVariables | None] = ContextVar("_active", default=None)


@contextmanager
def lifting(least_bytes: int = LEAST_BYTES) -> Iterator[None]:
    """Inside a with block, let `lift_constants` replace large constants by variables."""
    variables = _ConstantVariables(least_bytes)
    token = _active.set(variables)
    try:
        yield
    finally:
        _active.reset(token)
    if sizes := variables.num_bytes:
        logger.info(
            "exporting %d constants of %.1f MB as variables, which both metagraphs share",
            len(sizes),
            sum(sizes) / 1e6,
        )


def lift_constants() -> None:
    """Replace large constants by variables in the function that is being traced.

    This applies to constants that the function creates after this call, and only inside a `lifting`
    block.
    """
    variables = _active.get()
    if variables is None:
        return
    graph = tf.compat.v1.get_default_graph()
    capture = graph.capture

    def replace_constant(op_type: str, attributes: Any) -> Any:
        if op_type != "Const":
            return None
        tensor = attributes["value"].tensor
        shape, dtype = tf.TensorShape(tensor.tensor_shape), tf.as_dtype(tensor.dtype)
        # Do not replace a constant whose elements are all equal. Its `tensor_content` is empty, and
        # it is small in the file, because TensorFlow stores only one of its elements.
        content = tensor.tensor_content
        if not content or not variables.is_large(shape, dtype):
            return None

        def make_value() -> Any:
            return np.frombuffer(content, dtype.as_numpy_dtype).reshape(shape)

        return variables.read(shape, dtype, content, make_value).op

    def capture_tensor(tensor: Any, *arguments: Any, **options: Any) -> Any:
        is_eager = isinstance(tensor, tf.__internal__.EagerTensor)
        if not is_eager or not variables.is_large(tensor.shape, tensor.dtype):
            return capture(tensor, *arguments, **options)
        content = np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
        return variables.read(tensor.shape, tensor.dtype, content, lambda: tensor)

    tensorflow_internals.replace_created_ops(graph, replace_constant)
    graph.capture = capture_tensor


def _num_bytes(shape: Any, dtype: Any) -> int:
    return int((shape.num_elements() or 0) * dtype.size)
