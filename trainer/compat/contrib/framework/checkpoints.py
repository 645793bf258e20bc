"""Variables that take their values from a checkpoint, or from arrays."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import CheckpointMismatch, InvalidSetting

v1 = tf.compat.v1

logger = logging.getLogger("tensorflow.trainer")


def load_checkpoint(filepattern: str) -> Any:
    """A reader of a checkpoint, or of the newest in a directory."""
    return v1.train.load_checkpoint(filepattern)


def list_variables(checkpoint_dir: str) -> list[tuple[str, list[int]]]:
    """Name and shape of each variable of a checkpoint, or of the newest in a directory."""
    return list(v1.train.list_variables(checkpoint_dir))


def load_variable(checkpoint_dir: str, name: str) -> Any:
    """The array of one variable of a checkpoint, or of the newest in a directory."""
    return v1.train.load_variable(checkpoint_dir, name)


def init_from_checkpoint(checkpoint_dir: str, assignment_map: Any) -> None:
    """Has variables start with a checkpoint's values; see tf.train.init_from_checkpoint.

    Args:
      checkpoint_dir: a checkpoint, or a directory of some.
      assignment_map: name or scope in the checkpoint → name, scope or variable.
    """
    v1.train.init_from_checkpoint(checkpoint_dir, assignment_map)


def assign_from_values(var_names_to_values: Mapping[str, Any]) -> tuple[Any, dict[Any, Any]]:
    """An op that assigns arrays to variables, and the dict to feed it with.

    Args:
      var_names_to_values: full name of a variable → array of its shape.

    Raises:
      InvalidSetting: the graph has no such variable.
    """
    variables = {each.op.name: each for each in v1.global_variables()}
    unknown = [name for name in var_names_to_values if name not in variables]
    if unknown:
        raise InvalidSetting(
            f"assign_from_values found no variable {', '.join(unknown)}. The graph has "
            f"{', '.join(variables) or 'none'}."
        )
    operations, feeds = [], {}
    for name, value in var_names_to_values.items():
        variable = variables[name]
        placeholder = v1.placeholder(variable.dtype.base_dtype, variable.get_shape())
        operations.append(v1.assign(variable, placeholder))
        feeds[placeholder] = value
    return tf.group(*operations), feeds


def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A function of a session that assigns arrays to variables; see `assign_from_values`."""
    operation, feeds = assign_from_values(var_names_to_values)
    return lambda session: session.run(operation, feeds)


def assign_from_checkpoint(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Any, dict[Any, Any]]:
    """An op that assigns a checkpoint's values to variables, and the dict to feed it with.

    Args:
      model_path: a checkpoint.
      var_list: variables, or name in the checkpoint → variable.
      ignore_missing_vars: whether those that the checkpoint has not are left as they are.

    Raises:
      CheckpointMismatch: the checkpoint has no such name, or another shape.
    """
    reader = tf.train.load_checkpoint(model_path)
    found = _select_present(reader, _variables_by_name(var_list), ignore_missing_vars)
    operations, feeds = [], {}
    for name, variable in found.items():
        value = reader.get_tensor(name)
        if not variable.get_shape().is_compatible_with(value.shape):
            raise CheckpointMismatch(
                f"{name} has the shape {value.shape} in {model_path}, and {variable.op.name} the "
                f"shape {variable.get_shape()}. Leave it out of var_list, or make it as it was."
            )
        placeholder = v1.placeholder(variable.dtype.base_dtype, variable.get_shape())
        operations.append(v1.assign(variable, placeholder))
        feeds[placeholder] = value
    return tf.group(*operations), feeds


def assign_from_checkpoint_fn(
    model_path: str,
    var_list: Any,
    ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> Callable[[Any], None] | None:
    """A function of a session that restores variables from a checkpoint.

    Args:
      reshape_variables: whether values in another shape are reshaped to the variable's.
      model_path, var_list, ignore_missing_vars: see `assign_from_checkpoint`.

    Returns:
      The function; None where the checkpoint has none of the variables.
    """
    found = _variables_by_name(var_list)
    if ignore_missing_vars:
        found = _select_present(tf.train.load_checkpoint(model_path), found, True)
    if not found:
        logger.warning("%s has none of the variables to restore", model_path)
        return None
    saver = v1.train.Saver(found, reshape=reshape_variables)
    return lambda session: saver.restore(session, model_path)


def _variables_by_name(var_list: Any) -> dict[str, Any]:
    if isinstance(var_list, Mapping):
        return dict(var_list)
    return {each.op.name: each for each in var_list}


def _select_present(reader: Any, wanted: dict[str, Any], ignore_missing: bool) -> dict[str, Any]:
    missing = [name for name in wanted if not reader.has_tensor(name)]
    if missing and not ignore_missing:
        raise CheckpointMismatch(
            f"the checkpoint has no {', '.join(missing)}. Leave them out of var_list, or pass "
            f"ignore_missing_vars=True."
        )
    if missing:
        logger.warning("not in the checkpoint, so left as they are: %s", ", ".join(missing))
    return {name: each for name, each in wanted.items() if name not in missing}
