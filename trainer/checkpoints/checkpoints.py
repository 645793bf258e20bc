"""Checkpoints: the saver of a run, and what a model_dir holds."""

from typing import Any

import tensorflow as tf

from tpuserve.errors import CheckpointMismatch, CheckpointNotFound
from trainer.config.run_config import RunConfig

GLOBAL_STEP = "global_step"


def scaffold_with_saver(scaffold: Any, config: RunConfig) -> Any:
    """The model's Scaffold, or a new one, with a saver that keeps what the config says."""
    scaffold = scaffold or tf.compat.v1.train.Scaffold()
    savers = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SAVERS)
    if scaffold.saver is None and savers:
        scaffold._saver = savers[0]
    if scaffold.saver is None:
        scaffold._saver = tf.compat.v1.train.Saver(
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            # A model_dir that is moved or copied keeps working.
            save_relative_paths=True,
            # Built when the graph is finalized, with what hooks have added by then.
            defer_build=True,
        )
        # Where a CheckpointSaverHook of the model's own looks for it.
        savers.append(scaffold._saver)
    return scaffold


def read_global_step(checkpoint: str) -> int:
    """The global step that a checkpoint was written at."""
    return int(tf.train.load_checkpoint(checkpoint).get_tensor(GLOBAL_STEP))


def find_checkpoint(model_dir: str, checkpoint_path: str | None = None) -> str:
    """The checkpoint to read: the one asked for, else the newest.

    Raises:
      CheckpointNotFound: it is not there.
    """
    path = find_checkpoint_or_none(model_dir, checkpoint_path)
    if path is None:
        raise CheckpointNotFound(
            f"Couldn't find trained model at {model_dir}: no checkpoint there. Call train() "
            f"first, or name a checkpoint_path."
        )
    return path


def find_checkpoint_or_none(model_dir: str, checkpoint_path: str | None = None) -> str | None:
    """The checkpoint to read: the one asked for, else the newest, or None where there is none.

    The newest is the last that the file `checkpoint` names, which is written after the files of a
    checkpoint are: what a killed process has left half written is never found.

    Raises:
      CheckpointNotFound: the one asked for is not there.
    """
    if checkpoint_path is not None:
        if not any(map(tf.io.gfile.exists, (f"{checkpoint_path}.index", checkpoint_path))):
            raise CheckpointNotFound(
                f"no checkpoint {checkpoint_path}. Name one as it is written, without the "
                f"ending .index: model.ckpt-1000."
            )
        return checkpoint_path
    newest: str | None = tf.train.latest_checkpoint(model_dir)
    return newest


def missing_variables(saver: Any, checkpoint: str) -> list[str]:
    """The names, in order, that a built saver saves and a checkpoint does not hold."""
    saved = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    return sorted(saved_variable_names(saver) - set(saved))


def saved_variable_names(saver: Any) -> set[str]:
    """The names that a built saver saves variables under."""
    listed = saver._var_list
    if isinstance(listed, dict):
        return set(listed)
    return {_saved_name(each) for each in listed or ()}


def _saved_name(saveable: Any) -> str:
    part = getattr(saveable, "_save_slice_info", None)
    if part is not None:
        return str(part.full_name)
    return str(saveable.op.name if hasattr(saveable, "op") else saveable.name)


def check_variable_shapes(checkpoint: str) -> None:
    """Refuses a checkpoint that does not fit the variables of the default graph.

    A resource variable would take a value of another shape in silence.

    Raises:
      CheckpointMismatch: names the variable, both shapes and the checkpoint.
    """
    saved = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    for variable in tf.compat.v1.global_variables():
        name = variable.op.name
        if name in saved and not variable.shape.is_compatible_with(saved[name]):
            raise CheckpointMismatch(
                f"variable {name!r} has shape {variable.shape.as_list()} in the model and "
                f"{saved[name]} in checkpoint {checkpoint}. Use the model that wrote it, or "
                f"another model_dir."
            )
