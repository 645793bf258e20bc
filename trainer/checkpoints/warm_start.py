"""Warm start: initial values from another model's checkpoint."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.checkpoints import checkpoints
from trainer.checkpoints.checkpoints import WarmStartNotFound
from trainer.tensorflow_internals import VocabInfo as VocabInfo
from trainer.tensorflow_internals import warm_starting_util

# The name of the graph collection of the embedding tables. Training changes them, although they are
# not trainable variables: the embedding updates them, and not the optimizer of model_fn.
EMBEDDING_TABLES = "trainer_embedding_tables"


class _Settings(NamedTuple):
    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Mapping[str, Any] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None


class WarmStartSettings(_Settings):
    """Selects the variables that start from the values of a checkpoint.

    Attributes:
      ckpt_to_initialize_from: the path of a checkpoint, of a directory of checkpoints, or of a
        SavedModel.
      vars_to_warm_start: a regular expression that selects trainable variables and embedding tables
        by name; a list of regular expressions that selects among all variables; a list of
        variables; or None to select only the variables of var_name_to_vocab_info.
      var_name_to_vocab_info: variable name → `VocabInfo`, for embeddings whose vocabulary has
        changed.

    Raises:
      InvalidSetting: ckpt_to_initialize_from is empty.
    """

    __slots__ = ()

    def __new__(
        cls,
        ckpt_to_initialize_from: str,
        vars_to_warm_start: Any = ".*",
        var_name_to_vocab_info: Mapping[str, Any] | None = None,
        var_name_to_prev_var_name: Mapping[str, str] | None = None,
    ) -> "WarmStartSettings":
        """Validate and store the settings."""
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
    """Convert an estimator's warm_start_from to WarmStartSettings.

    Args:
      warm_start_from: WarmStartSettings; None; or the path of a checkpoint, of a directory of
        checkpoints or of a SavedModel.
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
    return WarmStartSettings(path)


def check_checkpoint_or_warm_start(
    checkpoint: str | None, settings: WarmStartSettings | None
) -> None:
    """Prepare the variables' first values: check the model's checkpoint, or set up a warm start.

    If the model has a checkpoint, check that its shapes match.

    Args:
      checkpoint: the path of the model's own checkpoint; None if it has none yet.
      settings: which variables of the default graph start from another model's values; None for no
        warm start. Ignored if there is a checkpoint.
    """
    if checkpoint is not None:
        checkpoints.check_variable_shapes(checkpoint)
    elif settings is not None:
        apply_warm_start(settings)


def find_source_checkpoint(settings: WarmStartSettings) -> str:
    """Return the path of the checkpoint that a warm start reads."""
    path: str | None = settings.ckpt_to_initialize_from
    # A SavedModel has its checkpoint in variables/variables.
    for name in ("variables", "variables/variables"):
        variables = tf.io.gfile.join(path, name)
        if tf.io.gfile.exists(f"{variables}.index"):
            return variables
    if tf.io.gfile.isdir(path):
        path = tf.train.latest_checkpoint(path)
    if path is None or not any(map(tf.io.gfile.exists, (f"{path}.index", path))):
        raise WarmStartNotFound(
            f"no checkpoint to warm start from: {settings.ckpt_to_initialize_from}. Name one as it "
            f"is written, without the ending .index (model.ckpt-1000), a directory that has some, "
            f"or a SavedModel."
        )
    return path


def apply_warm_start(settings: WarmStartSettings) -> None:
    """Give variables of the default graph initial values from a checkpoint.

    The settings select the variables and the checkpoint.
    """
    settings = settings._replace(ckpt_to_initialize_from=find_source_checkpoint(settings))
    if isinstance(settings.vars_to_warm_start, str):
        variables = _find_trained_variables(settings.vars_to_warm_start)
        settings = settings._replace(vars_to_warm_start=variables)
    warm_starting_util.warm_start(*settings)


def _find_trained_variables(pattern: str) -> list[Any]:
    """Find the trained variables of the default graph whose names match a regular expression."""
    graph = tf.compat.v1.get_default_graph()
    names = tf.compat.v1.GraphKeys
    local = {id(variable) for variable in graph.get_collection(names.LOCAL_VARIABLES)}
    trainable = graph.get_collection(names.TRAINABLE_VARIABLES, pattern)
    return [
        *(variable for variable in trainable if id(variable) not in local),
        *graph.get_collection(EMBEDDING_TABLES, pattern),
    ]
