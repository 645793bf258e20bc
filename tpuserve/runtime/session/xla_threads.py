"""The threads in which XLA compiles and computes on a CPU, made before they are needed.

The runtime makes them with the first program, for the whole process, and threads are as the one
that makes them: a load that leaves the processor to requests would leave those of requests behind
like itself.
"""

import threading
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

# What a function says, and a call of one, that XLA is to compile.
_MUST_COMPILE = b"_XlaMustCompile"

_one_at_a_time = threading.Lock()
_has_begun = False


def uses_xla(contents: Iterable[bytes]) -> bool:
    """Whether serialised parts of a graph ask for them."""
    return any(_MUST_COMPILE in each for each in contents)


def start_xla_thread_pool(config: Any) -> None:
    """Has them made, as the calling thread is, unless they are there; takes a tenth of a second.

    Args:
      config: the ConfigProto of sessions.
    """
    global _has_begun
    with _one_at_a_time:
        if _has_begun:
            return
        graph = tf.Graph()
        with graph.as_default():
            fed = tf.compat.v1.placeholder(tf.float32, [1])
            # Not a constant, which would be computed before it is compiled.
            fetched = tf.function(_double, jit_compile=True)(fed)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(fetched, {fed: [1.0]})
        _has_begun = True


def _double(tensor: Any) -> Any:
    return tensor + tensor
