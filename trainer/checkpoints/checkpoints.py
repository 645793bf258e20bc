"""Creates the Saver of a run, and finds and checks checkpoints."""

from typing import Any

import tensorflow as tf

from tpuserve.errors import CheckpointMismatch, CheckpointNotFound
from trainer.config.run_config import RunConfig
from trainer.tensorflow_internals import (
    ObjectGraphView,
    get_private_attribute,
    get_saver_variables,
    set_scaffold_saver,
)


class CheckpointShapeMismatch(CheckpointMismatch, tf.errors.InvalidArgumentError):
    """A checkpoint has variables of the model with other shapes."""

    def __init__(self, message: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)


class CheckpointVariableMissing(CheckpointMismatch, tf.errors.NotFoundError):
    """A checkpoint lacks variables of the model."""

    def __init__(self, message: str) -> None:
        tf.errors.NotFoundError.__init__(self, None, None, message)


class WarmStartNotFound(CheckpointNotFound, tf.errors.NotFoundError):
    """The checkpoint of a warm start does not exist."""

    def __init__(self, message: str) -> None:
        tf.errors.NotFoundError.__init__(self, None, None, message)


GLOBAL_STEP = "global_step"
_MAX_LISTED = 5
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def scaffold_with_saver(scaffold: Any, config: RunConfig) -> Any:
    """Make sure that a Scaffold has a Saver.

    A Scaffold without a Saver gets the first Saver in the graph's collection SAVERS or, if the
    collection is empty, a new Saver.

    Args:
      config: the settings of the run, which determine how many checkpoints a new Saver keeps.
    """
    if isinstance(scaffold.saver, (tf.train.Checkpoint, tf.compat.v1.train.Checkpoint)):
        objects = ObjectGraphView(scaffold.saver).frozen_saveable_objects()
        set_scaffold_saver(scaffold, tf.compat.v1.train.Saver(objects, sharded=True))
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
    """A Saver that can restore a checkpoint in which the variables of hooks are missing."""

    def __init__(self, **options: Any) -> None:
        self._names_of_model = {variable.op.name for variable in tf.compat.v1.global_variables()}
        self._variables_of_hooks: list[Any] = []
        self._saver_of_model: Any = None
        super().__init__(**options)

    def build(self) -> None:
        """Build the ops that save and restore all variables."""
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
        """Restore a checkpoint; initialise the variables of hooks if the checkpoint lacks them.

        Raises:
          CheckpointVariableMissing: the checkpoint lacks variables of the model.
        """
        hook_variables = {variable.op.name: variable for variable in self._variables_of_hooks}
        if not hook_variables or set(missing_variables(self, save_path)) != set(hook_variables):
            try:
                super().restore(sess, save_path)
            except tf.errors.NotFoundError:
                missing = missing_variables(self, save_path)
                if not missing:
                    raise
                raise CheckpointVariableMissing(
                    f"checkpoint {save_path} lacks variables of the model: "
                    f"{', '.join(missing[:_MAX_LISTED])}{', ...' * (len(missing) > _MAX_LISTED)}. "
                    f"Use the model and the optimizer that wrote it, or another model_dir."
                ) from None
            return
        self._saver_of_model.restore(sess, save_path)
        sess.run([variable.initializer for variable in hook_variables.values()])


def read_global_step(checkpoint: str) -> int:
    """Read the global step from a checkpoint."""
    reader = tf.train.load_checkpoint(checkpoint)
    if not reader.has_tensor(_OBJECT_GRAPH):
        return int(reader.get_tensor(GLOBAL_STEP))
    # A tf.train.Checkpoint has names of its own, and the file is named after its step.
    number = checkpoint.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def find_checkpoint(model_dir: str, checkpoint_path: str | None = None) -> str:
    """Return checkpoint_path or, if it is empty, the path of the newest checkpoint of model_dir."""
    path = find_checkpoint_or_none(model_dir, checkpoint_path)
    if path is None:
        raise CheckpointNotFound(
            f"Couldn't find trained model at {model_dir}: no checkpoint there. Call train() "
            f"first, or name a checkpoint_path."
        )
    return path


def find_checkpoint_or_none(model_dir: str, checkpoint_path: str | None = None) -> str | None:
    """Return checkpoint_path or, if it is empty, the path of the newest checkpoint of model_dir.

    The newest checkpoint is the last one that the file `checkpoint` in model_dir lists.

    Args:
      checkpoint_path: the path of a checkpoint, without the ending ".index". None and "" are
        empty.
    """
    if checkpoint_path:
        if not any(map(tf.io.gfile.exists, (f"{checkpoint_path}.index", checkpoint_path))):
            raise CheckpointNotFound(
                f"no checkpoint {checkpoint_path}. Name one as it is written, without the "
                f"ending .index: model.ckpt-1000."
            )
        return checkpoint_path
    newest: str | None = tf.train.latest_checkpoint(model_dir)
    return newest


def missing_variables(saver: Any, checkpoint: str) -> list[str]:
    """Return the names of the variables that a saver needs and a checkpoint does not contain."""
    saved = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    return sorted(saved_variable_names(saver) - set(saved))


def saved_variable_names(saver: Any) -> set[str]:
    """Return the names under which a Saver stores tensors; the Saver's ops must be built."""
    saveables = get_saver_variables(saver) or ()
    named = (
        saveables.items()
        if isinstance(saveables, dict)
        else [(None, saveable) for saveable in saveables]
    )
    return {saved for name, saveable in named for saved in _saved_names(name, saveable)}


def _saved_names(name: str | None, saveable: Any) -> list[str]:
    """Return the names under which a Saver stores the tensors of an object in checkpoints."""
    if hasattr(saveable, "specs"):
        return [spec.name for spec in saveable.specs]
    return [name or _saved_name(saveable)]


def _saved_name(saveable: Any) -> str:
    if isinstance(saveable, tf.Variable):
        slice_info = get_private_attribute(saveable, "_save_slice_info")
        if slice_info is not None:
            return str(slice_info.full_name)
    return str(saveable.op.name if hasattr(saveable, "op") else saveable.name)


def check_variable_shapes(checkpoint: str) -> None:
    """Check that the variables of the default graph have the same shapes as in a checkpoint.

    This check is needed because TensorFlow raises no error when it restores a value of another
    shape into a resource variable.
    """
    saved = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    for variable in tf.compat.v1.global_variables():
        name = variable.op.name
        if name in saved and not variable.shape.is_compatible_with(saved[name]):
            raise CheckpointShapeMismatch(
                f"variable {name!r} has shape {variable.shape.as_list()} in the model and "
                f"{saved[name]} in checkpoint {checkpoint}. Use the model that wrote it, or "
                f"another model_dir."
            )
