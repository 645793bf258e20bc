"""TensorFlow's profiler server, and events for it, in the process that runs the models."""

import functools
import threading
import time

from server.process import ports

_HOST = "127.0.0.1"
_EVENT_NAME = "serving"

_lock = threading.Lock()


def start_server() -> str:
    """Start TensorFlow's profiler server, unless it runs, and return its address."""
    with _lock:
        return _start_server()


def record_event(seconds: float, requests_in_flight: int) -> None:
    """Wait for some seconds; a profile that is being recorded shows the wait as an event.

    Args:
      seconds: the duration of the event.
      requests_in_flight: a number that the event shows.
    """
    from tensorflow.profiler.experimental import Trace

    with Trace(_EVENT_NAME, requests_in_flight=requests_in_flight):
        time.sleep(seconds)


# A process can start only one profiler server.
@functools.cache
def _start_server() -> str:
    import tensorflow as tf

    with ports.bind_port(_HOST, 0, "--enable_profiler") as reserved:
        port = reserved.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    return f"{_HOST}:{port}"
