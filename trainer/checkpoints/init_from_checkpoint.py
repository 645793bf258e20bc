"""Initial values that a program takes from a checkpoint, where it needs none."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tensorflow.python.training import checkpoint_utils

_are_left_out: ContextVar[bool] = ContextVar("initial values are left out", default=False)


@contextmanager
def skip_checkpoint_init() -> Iterator[None]:
    """Has tf.train.init_from_checkpoint check its arguments, and change nothing.

    What is exported has its values from its own checkpoint. Reading others would leave the path of
    a file in the graph, in strings, which no TPU has.
    """
    _install()
    before = _are_left_out.set(True)
    try:
        yield
    finally:
        _are_left_out.reset(before)


@functools.cache
def _install() -> None:
    # A program has init_from_checkpoint by many names; they all come to this.
    set_initializer = checkpoint_utils._set_checkpoint_initializer

    @functools.wraps(set_initializer)
    def unless_left_out(*arguments: Any, **options: Any) -> None:
        if not _are_left_out.get():
            set_initializer(*arguments, **options)

    checkpoint_utils._set_checkpoint_initializer = unless_left_out
