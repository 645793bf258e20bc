"""Makes the Python functions of input_fn available in all processes of a cluster.

Several processes emulate the hosts of a TPU. One of them, the leader, builds the graph and runs the
session; the others are workers. An op such as PyFunc names its Python function by a token. The
process that runs the op looks the token up in a registry, which TensorFlow keeps in each process.
Building the graph registers the functions only in the leader. So a worker calls the same input_fn
when an op in its process looks up a function for the first time.

Leader and workers give a function the same token, which is derived from the order in which input_fn
registers functions. The workers know only the input_fn of their first call of `train`, `evaluate`
or `predict`, because this call does not return in a worker.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer.distribution.topology import Pipeline
from trainer.tensorflow_internals import get_private_attribute, script_ops

_PREFIX = "tpuserve"
_SEPARATOR = ":"


@dataclass(frozen=True)
class _Call:
    """A call of `train`, `evaluate` or `predict`.

    Attributes:
      mode: one of `ModeKeys`.
      input_fn: the argument of the call.
    """

    mode: str
    input_fn: Callable[..., Any]


_first_call: _Call | None = None
_newest_call: _Call | None = None
_runs = itertools.count()


def note_call(mode: str, input_fn: Callable[..., Any]) -> None:
    """Record that this process calls `train`, `evaluate` or `predict`.

    `name_functions` compares the newest call with the first call, because the workers know only the
    input_fn of the first call.

    Args:
      mode: one of `ModeKeys`.
      input_fn: the argument of the call.
    """
    global _first_call, _newest_call
    _newest_call = _Call(mode, input_fn)
    _first_call = _first_call or _newest_call


def is_served_by_workers(token: bytes) -> bool:
    """Return whether the workers of a cluster can find the Python function of a token.

    They can if the context `_repeatable_tokens` has made the token, because such a token is the
    same in all processes. TensorFlow's own tokens are numbered separately in each process, so one
    token can stand for different functions in different processes.
    """
    return token.startswith(f"{_PREFIX}{_SEPARATOR}".encode())


def name_functions(call_input_fn: Callable[[Pipeline], Any]) -> Callable[[Pipeline], Any]:
    """Return a function that calls input_fn, so that workers can find its Python functions.

    While input_fn runs, each of its Python functions gets a token, the same in all processes.

    Args:
      call_input_fn: takes an input pipeline and calls the user's input_fn for it.

    Returns:
      The function. If the workers do not know this input_fn, the result is call_input_fn itself.
      They know only the input_fn of the first call of `train`, `evaluate` or `predict`.
    """
    if _newest_call is None or _newest_call != _first_call:
        return call_input_fn
    run = next(_runs)

    def call(pipeline: Pipeline) -> Any:
        with _repeatable_tokens(run, pipeline):
            return call_input_fn(pipeline)

    return call


def serve_functions(
    call_input_fn: Callable[[Pipeline], Any], pipelines: Sequence[Pipeline]
) -> None:
    """Let ops in this worker process call the Python functions of an input_fn.

    This function replaces the lookup in TensorFlow's registry of Python functions. If a Python
    function is missing, the new lookup first calls input_fn, which registers it. This happens once
    for each input pipeline and each graph that the leader process builds.

    Args:
      call_input_fn: takes an input pipeline and calls the user's input_fn for it.
      pipelines: all input pipelines of the cluster.
    """
    registry = script_ops._py_funcs
    get_known = registry.get
    lock = threading.Lock()
    # Index of an input pipeline → what is known of the last call of its input_fn: the number of the
    # leader process's graph that needed the call, and the tf.Graph that the call has built. Storing
    # the tf.Graph keeps the Python functions of the call alive.
    graphs: dict[int, tuple[int, Any]] = {}

    def get(token: str, default: Any = None) -> Any:
        if not is_served_by_workers(token.encode()):
            return get_known(token, default)
        # Look the token up first without the lock, which a thread holds while it calls input_fn. An
        # op that input_fn runs must not wait for this lock, because input_fn waits for the op.
        function = get_known(token)
        if function is None:
            run, index = map(int, token.split(_SEPARATOR, 3)[1:3])
            with lock:
                if index not in graphs or graphs[index][0] != run:
                    graphs[index] = run, _call_in_graph(call_input_fn, run, pipelines[index])
            function = get_known(token)
        if function is None:
            raise ValueError(
                f"input_fn calls other Python functions in this process than in the leader, which "
                f"has a function {token!r}. Let input_fn create the same Dataset in all processes."
            )
        return function

    registry.get = get


def _call_in_graph(call_input_fn: Callable[[Pipeline], Any], run: int, pipeline: Pipeline) -> Any:
    """Call an input_fn, which registers its Python functions; return the graph of its ops.

    The caller must store the graph, which keeps the functions alive.

    Args:
      call_input_fn: takes an input pipeline and calls the user's input_fn for it.
      run: the number of the graph, in the order in which the leader process builds graphs. The
        tokens contain this number.
      pipeline: the input pipeline to build.
    """
    graph = tf.Graph()
    with graph.as_default(), tf.device(pipeline.device), _repeatable_tokens(run, pipeline):
        call_input_fn(pipeline)
    return graph


@contextmanager
def _repeatable_tokens(run: int, pipeline: Pipeline) -> Iterator[None]:
    """Return a context in which this thread registers Python functions under repeatable tokens.

    A token is the same in all processes. It consists of `run`, the pipeline's index, the number of
    the Python function, and the name of this function.

    Args:
      run: the number of the graph, in the order in which the leader process builds graphs.
      pipeline: the input pipeline to which the Python functions belong.
    """
    registry, thread = script_ops._py_funcs, threading.get_ident()
    insert_unnamed = registry.insert
    numbers = itertools.count()

    def insert(function: Any) -> str:
        if threading.get_ident() != thread:
            unnamed: str = insert_unnamed(function)
            return unnamed
        is_eager = isinstance(function, script_ops.EagerFunc)
        inner = get_private_attribute(function, "_func") if is_eager else function
        name = getattr(inner, "__name__", type(inner).__name__)
        token = _SEPARATOR.join(map(str, (_PREFIX, run, pipeline.index, next(numbers), name)))
        get_private_attribute(registry, "_funcs")[token] = function
        return token

    registry.insert = insert
    try:
        yield
    finally:
        registry.insert = insert_unnamed
