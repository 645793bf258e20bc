"""Disables tf.train.init_from_checkpoint in graphs that restore their own checkpoint."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from trainer.tensorflow_internals import checkpoint_utils

_is_skipped: ContextVar[bool] = ContextVar("checkpoint initialization is skipped", default=False)


@contextmanager
def skip_checkpoint_init() -> Iterator[None]:
    """Make tf.train.init_from_checkpoint validate its arguments and change nothing.

    An exported model restores its own checkpoint. Initialization from another checkpoint would add
    string constants with a file path to the graph, which a TPU cannot hold.
    """
    _install()
    before = _is_skipped.set(True)
    try:
        yield
    finally:
        _is_skipped.reset(before)


@functools.cache
def _install() -> None:
    """Make all aliases of init_from_checkpoint obey `skip_checkpoint_init`.

    The aliases call one private function of TensorFlow, which is replaced once per process.
    """
    set_initializer = checkpoint_utils._set_checkpoint_initializer

    @functools.wraps(set_initializer)
    def set_unless_skipped(*arguments: Any, **options: Any) -> None:
        if not _is_skipped.get():
            set_initializer(*arguments, **options)

    checkpoint_utils._set_checkpoint_initializer = set_unless_skipped
