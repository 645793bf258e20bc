"""Makes tensors of a training step on a TPU available to summaries and logging hooks.

Summaries and hooks run on the host, and cannot read tensors inside the TPU computation.
"""

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import get_private_attribute, set_private_attribute, tensor_util


class StepOutputVariables:
    """Variables into which each step on a TPU copies tensors, for hooks and summaries on the host.

    The host cannot fetch a tensor of a step, because the step runs in a loop in the TPU
    computation.
    """

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self.writes: list[Any] = []

    def store(self, tensor: Any, name: str) -> Any:
        """Let each step copy a tensor into a new variable; called inside the step.

        For a floating-point scalar, the variable holds the mean over the replicas.
        """
        if tensor.dtype.is_floating and tensor.shape.rank == 0 and self._replicas > 1:
            tensor = tf.compat.v1.tpu.cross_replica_sum(tensor / self._replicas)
        with tf.init_scope():
            variable = tf.compat.v1.Variable(
                tf.zeros(tensor.shape, tensor.dtype),
                trainable=False,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                use_resource=True,
                name=f"last_step/{name}",
            )
        self.writes.append(variable.assign(tensor, read_value=False))
        return variable

    @staticmethod
    def can_store(tensor: Any) -> bool:
        """Return whether a tensor has a static shape and a dtype that a variable can have."""
        return tensor.shape.is_fully_defined() and tensor.dtype not in (tf.string, tf.resource)


def read_after(variable: Any, done: Any, name: str) -> Any:
    """Build a tensor that reads a variable of `StepOutputVariables` after the loop."""
    with tf.control_dependencies([done]):
        return tf.identity(variable.read_value(), name=name)


logger = logging.getLogger("tensorflow.trainer")

_SUMMARIES = tf.compat.v1.GraphKeys.SUMMARIES

# Type of a summary op → index of the op's input that is the tensor to show.
_VALUE_INPUTS = {
    "ScalarSummary": 1,
    "HistogramSummary": 1,
    "ImageSummary": 1,
    "AudioSummaryV2": 1,
}


class _FetchesHook(tf.compat.v1.train.SessionRunHook):
    """Gives LoggingTensorHooks their own tensors again, when they have looked at the others.

    A program may pass a hook of its own to several runs.
    """

    def __init__(self) -> None:
        self._fetches: dict[Any, Any] = {}

    def replace(self, hook: Any, tag: Any, tensor: Any) -> None:
        """Let a hook that begins now read another tensor."""
        tensors = get_private_attribute(hook, "_tensors")
        self._fetches.setdefault(hook, tensors)
        set_private_attribute(hook, "_tensors", {**tensors, tag: tensor})

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Restore the tensors, because each hook has begun."""
        for hook, tensors in self._fetches.items():
            set_private_attribute(hook, "_tensors", tensors)


class TensorCapture:
    """Copies tensors of a step into variables, for summaries and hooks on the host.

    Call `start` before model_fn. Call the capture methods after model_fn, inside the step. Call
    `restore_for_hooks` after the loop of steps is built.

    Attributes:
      fetches_hook: a SessionRunHook that a session with the hooks needs.
    """

    def __init__(self, outputs: StepOutputVariables) -> None:
        self._outputs = outputs
        self.fetches_hook = _FetchesHook()
        self._num_earlier_summaries = 0
        self._summaries: list[tuple[Any, Any]] = []
        self._hook_tensors: list[tuple[Any, Any, Any]] = []

    def start(self) -> None:
        """Count the summaries that exist before the call of model_fn.

        `capture_summaries` ignores them, because they are outside the TPU computation.
        """
        self._num_earlier_summaries = len(tf.compat.v1.get_collection(_SUMMARIES))

    def capture_summaries(self) -> None:
        """Let each step copy the tensors of model_fn's summaries to variables.

        Called inside the step.

        A warning is logged for a summary whose tensor cannot be copied.
        """
        for summary in tf.compat.v1.get_collection(_SUMMARIES)[self._num_earlier_summaries :]:
            operation = summary.op
            index = _VALUE_INPUTS.get(operation.type)
            tensor = None if index is None else operation.inputs[index]
            if tensor is None or not StepOutputVariables.can_store(tensor):
                logger.warning(
                    "summary %r is not written on a TPU: %s needs a tensor of static shape there",
                    operation.name,
                    operation.type,
                )
                continue
            self._summaries.append((operation, self._outputs.store(tensor, "summary")))

    def capture_hook_tensors(self, hooks: Sequence[Any], stored: dict[int, Any]) -> None:
        """Let each step copy tensors to variables, for LoggingTensorHooks and NanTensorHooks.

        Called inside the step.

        Args:
          stored: id of a tensor → the variable into which each step copies this tensor already.
            This method reuses these variables, and adds the variables that it creates.
        """
        step_graph = tf.compat.v1.get_default_graph()
        for hook in hooks:
            for tag, reference in _fetches(hook).items():
                tensor = _find_tensor(reference, step_graph)
                if tensor is None or not StepOutputVariables.can_store(tensor):
                    continue
                variable = stored.get(id(tensor))
                if variable is None:
                    variable = stored[id(tensor)] = self._outputs.store(tensor, "logged")
                self._hook_tensors.append((hook, tag, variable))

    def restore_for_hooks(self, done: Any) -> None:
        """Let summaries and hooks read the variables into which each step copies its tensors.

        Called after the training loop is built. Each captured summary is rebuilt outside the TPU
        computation.
        """
        for operation, variable in self._summaries:
            tag = tensor_util.constant_value(operation.inputs[0])
            value = read_after(variable, done, f"{operation.name}_of_last_step")
            tf.compat.v1.add_to_collection(_SUMMARIES, _build_summary(operation, tag, value))
        for hook, tag, variable in self._hook_tensors:
            tensor = read_after(variable, done, "logged_of_last_step")
            if isinstance(hook, tf.compat.v1.train.NanTensorHook):
                set_private_attribute(hook, "_loss_tensor", tensor)
            else:
                self.fetches_hook.replace(hook, tag, tensor)


def _fetches(hook: Any) -> dict[Any, Any]:
    if isinstance(hook, tf.compat.v1.train.NanTensorHook):
        return {"loss": get_private_attribute(hook, "_loss_tensor")}
    if isinstance(hook, tf.compat.v1.train.LoggingTensorHook):
        return dict(get_private_attribute(hook, "_tensors"))
    return {}


def _find_tensor(reference: Any, graph: Any) -> Any:
    if isinstance(reference, str):
        try:
            element = graph.as_graph_element(reference)
        except (KeyError, ValueError):
            return None
        outputs = getattr(element, "outputs", [element])
        return outputs[0] if len(outputs) == 1 else None
    return reference if tf.is_tensor(reference) and reference.graph is graph else None


def _build_summary(operation: Any, tag: Any, value: Any) -> Any:
    """Build a copy of a summary op, with the same options, that shows another tensor."""
    builders = {
        "ScalarSummary": lambda: tf.raw_ops.ScalarSummary(tags=tag, values=value),
        "HistogramSummary": lambda: tf.raw_ops.HistogramSummary(tag=tag, values=value),
        "ImageSummary": lambda: tf.raw_ops.ImageSummary(
            tag=tag, tensor=value, max_images=operation.get_attr("max_images")
        ),
        "AudioSummaryV2": lambda: tf.raw_ops.AudioSummaryV2(
            tag=tag,
            tensor=value,
            sample_rate=tensor_util.constant_value(operation.inputs[2]),
            max_outputs=operation.get_attr("max_outputs"),
        ),
    }
    return builders[operation.type]()
