"""Starts TensorFlow's profiler server in the process that runs the models, and records events."""

import functools
import threading
import time

from server.process import ports

_HOST = "127.0.0.1"
_EVENT_NAME = "serving"

_lock = threading.Lock()


def start_profiler_server() -> str:
    """Start TensorFlow's profiler server if it is not running; return its "host:port"."""
    with _lock:
        return _start_server()


def record_event(seconds: float, requests_in_flight: int) -> None:
    """Wait for some seconds, and record the wait as an event of TensorFlow's profiler.

    Without such events the profile of an idle server would be empty, and TensorFlow's client
    refuses an empty profile.
    """
    from tensorflow.profiler.experimental import Trace

    with Trace(_EVENT_NAME, requests_in_flight=requests_in_flight):
        time.sleep(seconds)


# A process can start only one profiler server. So the result is cached, and later calls return the
# address from the first call.
@functools.cache
def _start_server() -> str:
    import tensorflow as tf

    with ports.bind_port(_HOST, 0, "--enable_profiler") as reserved:
        port = reserved.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    return f"{_HOST}:{port}"
