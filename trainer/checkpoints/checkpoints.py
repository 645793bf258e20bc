"""Checkpoints: the saver of a run, and the lookup and validation of checkpoints."""

from typing import Any

import tensorflow as tf

from tpuserve.errors import CheckpointMismatch, CheckpointNotFound
from trainer.config.run_config import RunConfig
from trainer.tensorflow_internals import get_saver_variables, set_scaffold_saver

GLOBAL_STEP = "global_step"


def scaffold_with_saver(scaffold: Any, config: RunConfig) -> Any:
    """Return the model's Scaffold, or a new one; make sure that the Scaffold has a Saver.

    Args:
      scaffold: the Scaffold of the model's spec, or None.
      config: determines how many checkpoints a new saver keeps.

    Returns:
      The Scaffold. If it had no saver, it now has the first saver in the graph's collection SAVERS
      or, if the collection is empty, a new saver.
    """
    scaffold = scaffold or tf.compat.v1.train.Scaffold()
    savers = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SAVERS)
    if scaffold.saver is None and savers:
        set_scaffold_saver(scaffold, savers[0])
    if scaffold.saver is None:
        saver = _RunSaver(
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            # Store relative paths in the file `checkpoint`: they stay valid when model_dir is moved
            # or copied.
            save_relative_paths=True,
            # Build the saver only when the graph is finalized, so that it also saves the variables
            # that hooks add to the graph.
            defer_build=True,
        )
        set_scaffold_saver(scaffold, saver)
        # Add the saver to the graph's collection SAVERS: a CheckpointSaverHook that the model
        # creates looks for a saver there.
        savers.append(saver)
    return scaffold


class _RunSaver(tf.compat.v1.train.Saver):
    """A Saver that also restores checkpoints that lack variables that hooks create in begin().

    The first checkpoint of a converted Keras model is written before any hook exists. A hook's
    variables that the checkpoint lacks get their initial values.
    """

    def __init__(self, **options: Any) -> None:
        """Record which variables exist: those of the model, as no hook has been called yet."""
        self._names_of_model = {variable.op.name for variable in tf.compat.v1.global_variables()}
        self._variables_of_hooks: list[Any] = []
        self._saver_of_model: Any = None
        super().__init__(**options)

    def build(self) -> None:
        """Build the Saver's ops, and ops that restore all variables except those of hooks."""
        super().build()
        variables = tf.compat.v1.global_variables()
        self._variables_of_hooks = [
            variable for variable in variables if variable.op.name not in self._names_of_model
        ]
        if self._variables_of_hooks:
            hooks = {id(variable) for variable in self._variables_of_hooks}
            objects = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS)
            self._saver_of_model = tf.compat.v1.train.Saver(
                [saveable for saveable in (*variables, *objects) if id(saveable) not in hooks]
            )

    def restore(self, sess: Any, save_path: str) -> None:
        """Restore a checkpoint; initialise the variables of hooks if the checkpoint lacks them."""
        of_hooks = {variable.op.name: variable for variable in self._variables_of_hooks}
        if not of_hooks or set(missing_variables(self, save_path)) != set(of_hooks):
            super().restore(sess, save_path)
            return
        self._saver_of_model.restore(sess, save_path)
        sess.run([variable.initializer for variable in of_hooks.values()])


def read_global_step(checkpoint: str) -> int:
    """Read the global step from a checkpoint."""
    return int(tf.train.load_checkpoint(checkpoint).get_tensor(GLOBAL_STEP))


def find_checkpoint(model_dir: str, checkpoint_path: str | None = None) -> str:
    """Return the path of the checkpoint to read; see `find_checkpoint_or_none`.

    Raises:
      CheckpointNotFound: checkpoint_path does not exist, or model_dir holds no checkpoint.
    """
    path = find_checkpoint_or_none(model_dir, checkpoint_path)
    if path is None:
        raise CheckpointNotFound(
            f"Couldn't find trained model at {model_dir}: no checkpoint there. Call train() "
            f"first, or name a checkpoint_path."
        )
    return path


def find_checkpoint_or_none(model_dir: str, checkpoint_path: str | None = None) -> str | None:
    """Return the path of the checkpoint to read, or None if there is no checkpoint.

    The newest checkpoint is the last one that the file `checkpoint` lists. TensorFlow updates the
    file after it has written a checkpoint, so the files of an incomplete checkpoint are ignored.

    Args:
      model_dir: the directory of the checkpoints.
      checkpoint_path: the checkpoint to read; None takes the newest checkpoint of model_dir.

    Raises:
      CheckpointNotFound: checkpoint_path does not exist.
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
    """Return the sorted names of the variables that a built saver saves and a checkpoint lacks."""
    saved = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    return sorted(saved_variable_names(saver) - set(saved))


def saved_variable_names(saver: Any) -> set[str]:
    """Return the names of the tensors that a built Saver writes into checkpoints."""
    saveables = get_saver_variables(saver) or ()
    named = (
        saveables.items()
        if isinstance(saveables, dict)
        else [(None, saveable) for saveable in saveables]
    )
    return {saved for name, saveable in named for saved in _saved_names(name, saveable)}


def _saved_names(name: str | None, saveable: Any) -> list[str]:
    """Return the names of the tensors that an object has in checkpoints.

    Args:
      name: the name that the Saver gives to a variable; None for the variable's own name.
      saveable: a variable; or a SaveableObject, which may have several tensors, such as the keys
        and the values of a table.
    """
    if hasattr(saveable, "specs"):
        return [spec.name for spec in saveable.specs]
    return [name or _saved_name(saveable)]


def _saved_name(saveable: Any) -> str:
    """Return a variable's name in checkpoints; the partitions of a variable share one name."""
    slice_info = getattr(saveable, "_save_slice_info", None)
    if slice_info is not None:
        return str(slice_info.full_name)
    return str(saveable.op.name if hasattr(saveable, "op") else saveable.name)


def check_variable_shapes(checkpoint: str) -> None:
    """Check that a checkpoint matches the shapes of the default graph's variables.

    This check is needed because TensorFlow restores a value of another shape into a resource
    variable without an error.

    Raises:
      CheckpointMismatch: a shape differs; the message names the variable, both shapes and the
        checkpoint.
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
