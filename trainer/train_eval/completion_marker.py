"""The completion marker: a file in model_dir that informs the evaluator that training has ended.

Training can stop before max_steps, by early stopping or at the end of its input. Without the
marker, the evaluator would then wait for further checkpoints.
"""

import json

import tensorflow as tf

_FILE_NAME = "training_ended.json"


def write_marker(model_dir: str, step: int, max_steps: int | None) -> None:
    """Write the file that informs the evaluator process that training has ended.

    Call this function only after the last checkpoint has been saved.

    Args:
      max_steps: the max_steps of the training run; None if it had no limit.
    """
    path = _path(model_dir)
    # Write the marker under another name and rename the file. A rename is atomic, so the evaluator
    # never reads an incomplete marker.
    with tf.io.gfile.GFile(f"{path}.temp", "w") as file:
        file.write(json.dumps({"step": step, "max_steps": max_steps}))
    tf.io.gfile.rename(f"{path}.temp", path, overwrite=True)


def remove_marker(model_dir: str) -> None:
    """Remove the completion marker of an earlier training run, because training continues."""
    if tf.io.gfile.exists(_path(model_dir)):
        tf.io.gfile.remove(_path(model_dir))


def read_completed_step(model_dir: str, max_steps: int | None) -> int | None:
    """Read from the completion marker the global step at which training ended."""
    try:
        with tf.io.gfile.GFile(_path(model_dir), "r") as file:
            marker = json.loads(file.read())
    except tf.errors.NotFoundError:
        return None
    return int(marker["step"]) if marker["max_steps"] == max_steps else None


def _path(model_dir: str) -> str:
    path: str = tf.io.gfile.join(model_dir, _FILE_NAME)
    return path
