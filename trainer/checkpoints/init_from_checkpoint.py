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
    """Return a context in which init_from_checkpoint checks its arguments, but sets no variable.

    An exported model restores its own checkpoint, so it needs no initial values from another
    checkpoint.
    """
    _install()
    before = _is_skipped.set(True)
    try:
        yield
    finally:
        _is_skipped.reset(before)


@functools.cache
def _install() -> None:
    set_initializer = checkpoint_utils._set_checkpoint_initializer

    @functools.wraps(set_initializer)
    def set_unless_skipped(*arguments: Any, **options: Any) -> None:
        if not _is_skipped.get():
            set_initializer(*arguments, **options)

    checkpoint_utils._set_checkpoint_initializer = set_unless_skipped
