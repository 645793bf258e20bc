"""Lets the graph of a step, the body of a loop, behave as in TensorFlow 1.

There, the loop and the TPU computation were parts of the program's own graph.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import control_flow_ops, get_private_attribute

# Packages whose functions expect that `tf.control_dependencies(None)` does not leave a function.
_OF_TENSORFLOW = ("tensorflow", "keras", "tf_keras", "trainer", "tpuserve")


# The graphs of the steps that are being built, the innermost last.
_steps: list[Any] = []


def current_step() -> Any:
    """Return the graph of the step that model_fn is building; None outside of such a step."""
    return _steps[-1] if _steps else None


@contextmanager
def as_part_of_program(tpu_context: Any) -> Iterator[None]:
    """Let model_fn build ops outside of the step, and use variables of which replicas have copies.

    In the `with` block, `tf.control_dependencies(None)` leaves the step and the TPU computation, as
    it does in TensorFlow 1, if the program and not TensorFlow calls it. The default graph must be
    that of the step.

    Args:
      tpu_context: the control flow context of the TPU computation.
    """
    graph = tf.compat.v1.get_default_graph()
    stay = graph.control_dependencies

    def control_dependencies(control_inputs: Any) -> Any:
        is_leaving = control_inputs is None and not _is_called_by_tensorflow()
        return tf.init_scope() if is_leaving else stay(control_inputs)

    graph.control_dependencies = control_dependencies
    set_context = get_private_attribute(graph, "_set_control_flow_context")
    set_context(_StepContext(graph, tpu_context))
    _steps.append(graph)
    try:
        yield
    finally:
        _steps.pop()
        set_context(None)
        graph.control_dependencies = stay


class _StepContext(control_flow_ops.XLAControlFlowContext):
    """The control flow context of a step, in which programs look for that of the computation."""

    def __init__(self, graph: Any, tpu_context: Any) -> None:
        super().__init__()
        self._graph, self._tpu_context = graph, tpu_context

    def get_replicated_var_handle(
        self, name: str, handle_id: str, vars_: Any, **options: Any
    ) -> Any:
        """Return, in the step's graph, the handle of each replica's own copy of a variable."""
        handle = self._tpu_context.get_replicated_var_handle(name, handle_id, vars_, **options)
        return self._graph.capture(handle)


def _is_called_by_tensorflow() -> bool:
    """Return whether the caller of tf.control_dependencies is a function of TensorFlow."""
    # From here: this function, control_dependencies above, TensorFlow's function of that name.
    module = sys._getframe(3).f_globals.get("__name__", "")
    return module.partition(".")[0] in _OF_TENSORFLOW
