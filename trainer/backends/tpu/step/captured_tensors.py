"""Tensors of a step that summaries and logging hooks want, taken out of the computation.

On a TPU neither can reach into the computation. So what they want is kept by each step, and they
are given what was kept of the last one.
"""

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.backends.tpu.step import step_outputs
from trainer.backends.tpu.step.step_outputs import StepOutputVariables
from trainer.tensorflow_internals import tensor_util

logger = logging.getLogger("tensorflow.trainer")

_SUMMARIES = tf.compat.v1.GraphKeys.SUMMARIES

# Op type → position of the tensor that it summarises.
_SUMMARISED = {
    "ScalarSummary": 1,
    "HistogramSummary": 1,
    "ImageSummary": 1,
    "AudioSummaryV2": 1,
}


class TensorCapture:
    """What a step is asked to keep, and who gets it."""

    def __init__(self, values: StepOutputVariables) -> None:
        """Nothing is observed yet."""
        self._kept = values
        self._summaries: list[tuple[Any, Any]] = []
        self._logged: list[tuple[Any, Any, Any]] = []

    def capture_summaries_since(self, before: int) -> None:
        """Keeps what the summary ops show that the step has made; built inside of it.

        Args:
          before: how many summaries the graph had when the step began.
        """
        for summary in tf.compat.v1.get_collection(_SUMMARIES)[before:]:
            operation = summary.op
            position = _SUMMARISED.get(operation.type)
            shown = None if position is None else operation.inputs[position]
            if shown is None or not StepOutputVariables.can_keep(shown):
                logger.warning(
                    "no summary %r on a TPU: %s needs a tensor of static shape there",
                    operation.name,
                    operation.type,
                )
                continue
            self._summaries.append((operation, self._kept.keep(shown, "summary")))

    def capture_hook_tensors(self, hooks: Sequence[Any], known: dict[int, Any]) -> None:
        """Keeps the tensors of the step that logging hooks and NaN hooks want; built inside of it.

        Args:
          hooks: of the model.
          known: id of a tensor → what it is kept as already.
        """
        inside = tf.compat.v1.get_default_graph()
        for hook in hooks:
            for tag, wanted in _wanted_by(hook).items():
                tensor = _found(wanted, inside)
                if tensor is None or not StepOutputVariables.can_keep(tensor):
                    continue
                variable = known.get(id(tensor))
                if variable is None:
                    variable = known[id(tensor)] = self._kept.keep(tensor, "logged")
                self._logged.append((hook, tag, variable))

    def restore_for_hooks(self, after: Any) -> None:
        """Makes the summaries anew, and gives hooks their tensors; built outside.

        Args:
          after: the op that runs the loop.
        """
        for operation, variable in self._summaries:
            tag = tensor_util.constant_value(operation.inputs[0])
            value = step_outputs.read_after(variable, after, f"{operation.name}_of_last_step")
            tf.compat.v1.add_to_collection(_SUMMARIES, _summary(operation, tag, value))
        for hook, tag, variable in self._logged:
            tensor = step_outputs.read_after(variable, after, "logged_of_last_step")
            if isinstance(hook, tf.compat.v1.train.NanTensorHook):
                hook._loss_tensor = tensor
            else:
                hook._tensors = {**hook._tensors, tag: tensor}


def _wanted_by(hook: Any) -> dict[Any, Any]:
    """What a hook fetches: tag → tensor, or the name of one."""
    if isinstance(hook, tf.compat.v1.train.NanTensorHook):
        return {"loss": hook._loss_tensor}
    if isinstance(hook, tf.compat.v1.train.LoggingTensorHook):
        return dict(hook._tensors)
    return {}


def _found(wanted: Any, inside: Any) -> Any:
    """The tensor of a graph that is wanted; None where it is of another graph."""
    if isinstance(wanted, str):
        try:
            element = inside.as_graph_element(wanted)
        except (KeyError, ValueError):
            return None
        outputs = getattr(element, "outputs", [element])
        return outputs[0] if len(outputs) == 1 else None
    return wanted if tf.is_tensor(wanted) and wanted.graph is inside else None


def _summary(operation: Any, tag: Any, value: Any) -> Any:
    make = {
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
    return make[operation.type]()
