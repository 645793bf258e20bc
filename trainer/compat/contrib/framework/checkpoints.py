"""Functions that read checkpoints, and assign values from checkpoints or arrays to variables."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import CheckpointMismatch, InvalidSetting

v1 = tf.compat.v1

logger = logging.getLogger("tensorflow.trainer")


def load_checkpoint(filepattern: str) -> Any:
    """Return a CheckpointReader of a checkpoint, or of the newest checkpoint in a directory."""
    return v1.train.load_checkpoint(filepattern)


def list_variables(checkpoint_dir: str) -> list[tuple[str, list[int]]]:
    """List the (name, shape) pairs of a checkpoint, or of the newest checkpoint in a directory."""
    return list(v1.train.list_variables(checkpoint_dir))


def load_variable(checkpoint_dir: str, name: str) -> Any:
    """Load a variable of a checkpoint, or of the newest checkpoint in a directory, as an array."""
    return v1.train.load_variable(checkpoint_dir, name)


def init_from_checkpoint(checkpoint_dir: str, assignment_map: Any) -> None:
    """Initialize variables with a checkpoint's values, by tf.compat.v1.train.init_from_checkpoint.

    Args:
      checkpoint_dir: a checkpoint, or a directory of checkpoints, of which the newest counts.
      assignment_map: maps a name or scope in the checkpoint to a name, scope or variable of the
        graph.
    """
    v1.train.init_from_checkpoint(checkpoint_dir, assignment_map)


def assign_from_values(var_names_to_values: Mapping[str, Any]) -> tuple[Any, dict[Any, Any]]:
    """Build an op that assigns arrays to variables.

    Args:
      var_names_to_values: full name of a variable → array of the variable's shape.

    Returns:
      The op, and the dict to feed when the op runs: placeholder → array.
    """
    variables = {variable.op.name: variable for variable in v1.global_variables()}
    unknown = [name for name in var_names_to_values if name not in variables]
    if unknown:
        raise InvalidSetting(
            f"assign_from_values: the graph has no variable {', '.join(unknown)}. Its variables "
            f"are {', '.join(variables) or 'none'}."
        )
    return _assign_by_feed((variables[name], value) for name, value in var_names_to_values.items())


def _assign_by_feed(pairs: Iterable[tuple[Any, Any]]) -> tuple[Any, dict[Any, Any]]:
    """Return an op that assigns arrays to variables, and the dict to feed: placeholder → array."""
    operations, feeds = [], {}
    for variable, value in pairs:
        placeholder = v1.placeholder(variable.dtype.base_dtype, variable.get_shape())
        operations.append(v1.assign(variable, placeholder))
        feeds[placeholder] = value
    return tf.group(*operations), feeds


def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a function that takes a session, and assigns arrays to variables in this session.

    Args:
      var_names_to_values: full name of a variable → array of the variable's shape.
    """
    operation, feeds = assign_from_values(var_names_to_values)
    return lambda session: session.run(operation, feeds)


def assign_from_checkpoint(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Any, dict[Any, Any]]:
    """Build an op that assigns a checkpoint's values to variables.

    Returns:
      The op, and the dict to feed when the op runs: placeholder → array.
    """
    reader = tf.train.load_checkpoint(model_path)
    variables = _select_present(reader, _variables_by_name(var_list), ignore_missing_vars)
    pairs = []
    for name, variable in variables.items():
        value = reader.get_tensor(name)
        if not variable.get_shape().is_compatible_with(value.shape):
            raise CheckpointMismatch(
                f"{name} has shape {value.shape} in {model_path}, but the variable "
                f"{variable.op.name} has shape {variable.get_shape()}. Remove the variable from "
                f"var_list, or create it with the checkpoint's shape."
            )
        pairs.append((variable, value))
    return _assign_by_feed(pairs)


def assign_from_checkpoint_fn(
    model_path: str,
    var_list: Any,
    ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> Callable[[Any], None] | None:
    """Build a function that restores variables from a checkpoint.

    Returns:
      None if ignore_missing_vars is set and the checkpoint has none of the variables.
    """
    variables = _variables_by_name(var_list)
    if ignore_missing_vars:
        variables = _select_present(tf.train.load_checkpoint(model_path), variables, True)
    if not variables:
        logger.warning("%s contains none of the variables to restore", model_path)
        return None
    saver = v1.train.Saver(variables, reshape=reshape_variables)
    return lambda session: saver.restore(session, model_path)


def _variables_by_name(var_list: Any) -> dict[str, Any]:
    if isinstance(var_list, Mapping):
        return dict(var_list)
    return {variable.op.name: variable for variable in var_list}


def _select_present(reader: Any, variables: dict[str, Any], ignore_missing: bool) -> dict[str, Any]:
    """Return the variables that a checkpoint contains, by their names in the checkpoint."""
    missing = [name for name in variables if not reader.has_tensor(name)]
    if missing and not ignore_missing:
        raise CheckpointMismatch(
            f"The checkpoint has no {', '.join(missing)}. Remove them from var_list, or pass "
            f"ignore_missing_vars=True."
        )
    if missing:
        logger.warning(
            "Variables that are not in the checkpoint keep their values: %s", ", ".join(missing)
        )
    return {name: variable for name, variable in variables.items() if name not in missing}
