"""The Python functions that the input pipelines of a cluster's processes call.

An op such as PyFunc names its Python function by a token, and the process that runs the op looks
the token up in a registry of its own. Only the leader builds the graph, and so only the registry of
the leader has the functions of all pipelines. A worker therefore calls the same input_fn for the
pipelines of its host when an op of its process asks for a function for the first time.

Leader and workers name the functions alike, by the order in which input_fn registers them. The
workers know the input_fn of their first call of `train`, `evaluate` or `predict` only, because this
call does not return there.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer.distribution.topology import Pipeline
from trainer.tensorflow_internals import script_ops

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

    Args:
      mode: one of `ModeKeys`.
      input_fn: the argument of the call.
    """
    global _first_call, _newest_call
    _newest_call = _Call(mode, input_fn)
    _first_call = _first_call or _newest_call


def is_served_by_workers(token: bytes) -> bool:
    """Return whether the workers of a cluster find the Python function of a token."""
    return token.startswith(f"{_PREFIX}{_SEPARATOR}".encode())


def name_functions(call_input_fn: Callable[[Pipeline], Any]) -> Callable[[Pipeline], Any]:
    """Return a function that calls input_fn, and names its Python functions for the workers.

    Args:
      call_input_fn: calls the input_fn of the newest call for an input pipeline. It is returned
        unchanged if the workers do not know this input_fn.
    """
    if _newest_call is None or _newest_call != _first_call:
        return call_input_fn
    run = next(_runs)

    def call(pipeline: Pipeline) -> Any:
        with _named(run, pipeline):
            return call_input_fn(pipeline)

    return call


def serve_functions(
    call_input_fn: Callable[[Pipeline], Any], pipelines: Sequence[Pipeline]
) -> None:
    """Let ops that the leader places in this process call the Python functions of an input_fn.

    For each run of the leader, input_fn is called once for each pipeline with such an op, when the
    op runs for the first time.

    Args:
      call_input_fn: calls the input_fn for an input pipeline.
      pipelines: all input pipelines of the cluster.
    """
    registry = script_ops._py_funcs
    get_known = registry.get
    lock = threading.Lock()
    # Pipeline → the run and the graph of the newest call of input_fn. The graph keeps the functions
    # alive.
    graphs: dict[int, tuple[int, Any]] = {}

    def get(token: str, default: Any = None) -> Any:
        if not is_served_by_workers(token.encode()):
            return get_known(token, default)
        # Look without the lock first: input_fn itself may run such an op.
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
    """Call an input_fn, which registers its Python functions; return the graph of its ops."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(pipeline.device), _named(run, pipeline):
        call_input_fn(pipeline)
    return graph


@contextmanager
def _named(run: int, pipeline: Pipeline) -> Iterator[None]:
    """Return a context in which this thread registers Python functions by names of our own."""
    registry, thread = script_ops._py_funcs, threading.get_ident()
    insert_unnamed = registry.insert
    numbers = itertools.count()

    def insert(function: Any) -> str:
        if threading.get_ident() != thread:
            unnamed: str = insert_unnamed(function)
            return unnamed
        inner = getattr(function, "_func", function)
        name = getattr(inner, "__name__", type(inner).__name__)
        token = _SEPARATOR.join(map(str, (_PREFIX, run, pipeline.index, next(numbers), name)))
        registry._funcs[token] = function
        return token

    registry.insert = insert
    try:
        yield
    finally:
        registry.insert = insert_unnamed
