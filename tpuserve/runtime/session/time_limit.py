"""Limits the time of a session's initialisation, because ops of the model may never end."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuserve.errors import Code, CodedError


@contextmanager
def limit_initialisation(session: Any, seconds: float, directory: Path) -> Iterator[None]:
    """Close a session if the body of the `with` statement takes too long.

    A run in the calling thread can be stopped only by closing the session: TensorFlow enforces the
    time limit in RunOptions only for runs in its thread pools.

    Args:
      session: a tf.compat.v1.Session that runs the initialisation.
      seconds: the time limit; 0 for no limit.
      directory: the directory of the SavedModel, for the text of the error.

    Raises:
      CodedError: the time limit has passed.
    """
    if not seconds:
        yield
        return
    lock = threading.Lock()
    is_over = is_late = False

    def close() -> None:
        nonlocal is_late
        with lock:
            if not is_over:
                is_late = True
                session.close()

    timer = threading.Timer(seconds, close)
    timer.daemon = True
    timer.start()
    cause: Exception | None = None
    try:
        yield
    except Exception as error:
        cause = error
    finally:
        timer.cancel()
        with lock:
            is_over = True
    if is_late:
        raise CodedError(
            f"the initialisation of {directory} has not ended in {seconds:g} s. Export the model "
            f"without a loop that may never end, or raise --load_timeout_seconds.",
            Code.DEADLINE_EXCEEDED,
        ) from cause
    if cause is not None:
        raise cause
