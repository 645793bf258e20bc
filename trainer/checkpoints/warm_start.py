"""Initial values from another model's checkpoint."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.training import warm_starting_util
from tensorflow.python.training.warm_starting_util import VocabInfo as VocabInfo

from tpuserve.errors import CheckpointNotFound, InvalidSetting, InvalidType
from trainer.checkpoints import checkpoints


class _Settings(NamedTuple):
    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Mapping[str, Any] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None


class WarmStartSettings(_Settings):
    """Which variables start from which checkpoint.

    Attributes:
      ckpt_to_initialize_from: a checkpoint, or a directory that has some.
      vars_to_warm_start: a regular expression over names of trainable variables; a list of such
        over all variables; a list of variables; or None for those with a VocabInfo alone.
      var_name_to_vocab_info: variable → `VocabInfo`, for embeddings whose vocabulary has changed.
      var_name_to_prev_var_name: variable → its name in the checkpoint, where it has another.

    Raises:
      InvalidSetting: no checkpoint is named.
    """

    __slots__ = ()

    def __new__(
        cls,
        ckpt_to_initialize_from: str,
        vars_to_warm_start: Any = ".*",
        var_name_to_vocab_info: Mapping[str, Any] | None = None,
        var_name_to_prev_var_name: Mapping[str, str] | None = None,
    ) -> "WarmStartSettings":
        """The settings, checked."""
        if not ckpt_to_initialize_from:
            raise InvalidSetting(
                "`ckpt_to_initialize_from` MUST be set in WarmStartSettings. Name a checkpoint."
            )
        return super().__new__(
            cls,
            ckpt_to_initialize_from,
            vars_to_warm_start,
            var_name_to_vocab_info or {},
            var_name_to_prev_var_name or {},
        )


def to_warm_start_settings(warm_start_from: Any) -> WarmStartSettings | None:
    """The settings that an estimator's warm_start_from stands for.

    Args:
      warm_start_from: settings; or the path of a checkpoint, of a directory of checkpoints, or
        of a SavedModel, all of whose trainable variables are taken; or None.

    Raises:
      InvalidSetting: the path is empty.
      InvalidType: it is nothing of these.
    """
    if warm_start_from is None or isinstance(warm_start_from, WarmStartSettings):
        return warm_start_from
    if not isinstance(warm_start_from, (str, bytes)):
        raise InvalidType(
            f"warm_start_from is {warm_start_from!r}. Give a path, or a trainer.WarmStartSettings."
        )
    path = tf.compat.as_str(warm_start_from)
    if not path:
        raise InvalidSetting("warm_start_from is empty. Name a checkpoint or a SavedModel.")
    variables = tf.io.gfile.join(path, "variables", "variables")
    is_saved_model = tf.io.gfile.exists(f"{variables}.index")
    return WarmStartSettings(variables if is_saved_model else path)


def check_checkpoint_or_warm_start(
    checkpoint: str | None, wanted: WarmStartSettings | None
) -> None:
    """Sees where the variables of the default graph start: from a checkpoint of their own, if any.

    Raises:
      CheckpointMismatch: the checkpoint holds a variable in another shape.
      CheckpointNotFound: see `apply_warm_start`.
    """
    if checkpoint is not None:
        checkpoints.check_variable_shapes(checkpoint)
    elif wanted is not None:
        apply_warm_start(wanted)


def apply_warm_start(wanted: WarmStartSettings) -> None:
    """Gives the variables of the default graph initial values from a checkpoint.

    Raises:
      CheckpointNotFound: it is not there.
    """
    path = wanted.ckpt_to_initialize_from
    files = [f"{path}.index", path]
    if tf.io.gfile.isdir(path):
        files = [f"{tf.train.latest_checkpoint(path)}.index"]
    if not any(map(tf.io.gfile.exists, files)):
        raise CheckpointNotFound(
            f"no checkpoint to warm start from: {path}. Name one as it is written, without the "
            f"ending .index (model.ckpt-1000), a directory that has some, or a SavedModel."
        )
    warm_starting_util.warm_start(*wanted)
