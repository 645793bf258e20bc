"""The end of a training, told to an evaluator in another process by a file in model_dir.

A training that stops before max_steps, early or with its input, leaves no checkpoint that would
tell an evaluator that no other will come.
"""

import json

import tensorflow as tf

_FILE_NAME = "training_ended.json"


def write_marker(model_dir: str, step: int, max_steps: int | None) -> None:
    """Says that training towards max_steps has ended at a step, whose checkpoint is written."""
    path = _path(model_dir)
    # Readers see all of it, or nothing.
    with tf.io.gfile.GFile(f"{path}.temp", "w") as file:
        file.write(json.dumps({"step": step, "max_steps": max_steps}))
    tf.io.gfile.rename(f"{path}.temp", path, overwrite=True)


def remove_marker(model_dir: str) -> None:
    """Says that training goes on."""
    if tf.io.gfile.exists(_path(model_dir)):
        tf.io.gfile.remove(_path(model_dir))


def read_completed_step(model_dir: str, max_steps: int | None) -> int | None:
    """The step that training towards max_steps has ended at; None where it has not.

    The end of a training towards other max_steps is one of an earlier run.
    """
    try:
        with tf.io.gfile.GFile(_path(model_dir), "r") as file:
            end = json.loads(file.read())
    except tf.errors.NotFoundError:
        return None
    return int(end["step"]) if end["max_steps"] == max_steps else None


def _path(model_dir: str) -> str:
    path: str = tf.io.gfile.join(model_dir, _FILE_NAME)
    return path
