"""Starts the threads in which XLA compiles and computes on a CPU.

XLA creates one thread pool for the process when it compiles the first program. The threads of the
pool inherit the scheduling priority of the thread that creates it. Models are loaded in threads of
low priority. If such a thread created the pool, all later requests would run at low priority. So
this module creates the pool before such a thread runs.
"""

import threading
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

# The attribute that marks a function, or a call of a function, for compilation by XLA.
_MUST_COMPILE = b"_XlaMustCompile"

_lock = threading.Lock()
_has_started = False


def uses_xla(serialised_graphs: Iterable[bytes]) -> bool:
    """Return whether any of the serialised GraphDefs has a function that XLA compiles."""
    return any(_MUST_COMPILE in graph for graph in serialised_graphs)


def start_xla_thread_pool(config: Any) -> None:
    """Start XLA's thread pool at the calling thread's priority, unless this was done before.

    The first call takes about 0.1 seconds.

    Args:
      config: the ConfigProto of the session that compiles the first program.
    """
    global _has_started
    with _lock:
        if _has_started:
            return
        graph = tf.Graph()
        with graph.as_default():
            placeholder = tf.compat.v1.placeholder(tf.float32, [1])
            # Use a placeholder as the input of the program that XLA compiles. TensorFlow would fold
            # a computation on a constant, and XLA would compile nothing.
            doubled = tf.function(_double, jit_compile=True)(placeholder)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(doubled, {placeholder: [1.0]})
        _has_started = True


def _double(tensor: Any) -> Any:
    return tensor + tensor
