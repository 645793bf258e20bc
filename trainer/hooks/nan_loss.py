"""Hooks that end training at a loss that is NaN, and save no checkpoint of its step."""

from typing import Any

import tensorflow as tf

_ADVICE = (
    "Lower the learning rate, clip the gradients, or look for a log or a division of zero; "
    "training can continue from the last checkpoint."
)


class NanError(tf.compat.v1.train.NanLossDuringTrainingError):
    """The error that ends training because the loss or a variable is NaN or infinite."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self._found = found

    def __str__(self) -> str:
        return f"{self._found}. {_ADVICE}"


class NanLossHook(tf.compat.v1.train.NanTensorHook):
    """Ends training with a NanError if the loss is NaN."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Check the loss of the last step of the `session.run`."""
        try:
            super().after_run(run_context, run_values)
        except tf.compat.v1.train.NanLossDuringTrainingError as error:
            raise NanError("NaN loss during training") from error


class NumberLossSaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """Saves checkpoints, but none after a step whose loss is NaN: training goes on from the last.

    The hook is called before those of the user, who find its checkpoints, and a NanLossHook after.
    """

    def __init__(self, loss: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loss = loss

    def before_run(self, run_context: Any) -> Any:
        """Let the next training loop fetch the loss too."""
        step = super().before_run(run_context).fetches
        return tf.compat.v1.train.SessionRunArgs((step, self._loss))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save a checkpoint if it is due and the loss is a number."""
        step, loss = run_values.results
        if loss == loss:
            super().after_run(run_context, run_values._replace(results=step))
