"""Creation of a model's variables, and selection of variables by scope or name."""

import contextlib
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.tensorflow_internals import find_private_attribute

v1 = tf.compat.v1
_Keys = v1.GraphKeys


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: Any = None,
    synchronization: Any = tf.VariableSynchronization.AUTO,
    aggregation: Any = v1.VariableAggregation.NONE,
) -> Any:
    """Create or reuse a variable of the current variable scope.

    Args:
      device: the device to place the variable on, a string or a function of the op; None for the
        current device.
    """
    collections = list(collections) if collections is not None else [_Keys.GLOBAL_VARIABLES]
    with v1.device(device) if device is not None else contextlib.nullcontext():
        return v1.get_variable(
            name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=list(dict.fromkeys(collections)),
            caching_device=caching_device,
            partitioner=partitioner,
            custom_getter=custom_getter,
            use_resource=use_resource,
            synchronization=synchronization,
            aggregation=aggregation,
        )


@add_arg_scope
def model_variable(
    name: str,
    shape: Any = None,
    dtype: Any = tf.float32,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Any = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: Any = None,
    synchronization: Any = tf.VariableSynchronization.AUTO,
    aggregation: Any = v1.VariableAggregation.NONE,
) -> Any:
    """Create or reuse a variable, and add it to tf.GraphKeys.MODEL_VARIABLES.

    The arguments are those of `variable`, the function of this module.
    """
    collections = [*(collections or []), _Keys.GLOBAL_VARIABLES, _Keys.MODEL_VARIABLES]
    return variable(
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=collections,
        caching_device=caching_device,
        device=device,
        partitioner=partitioner,
        custom_getter=custom_getter,
        use_resource=use_resource,
        synchronization=synchronization,
        aggregation=aggregation,
    )


def local_variable(
    initial_value: Any, validate_shape: bool = True, name: Any = None, use_resource: Any = None
) -> Any:
    """Create a non-trainable variable that checkpoints do not contain.

    The arguments are those of tf.compat.v1.Variable.
    """
    return _make_untrained_variable(
        initial_value, validate_shape, name, use_resource, _Keys.LOCAL_VARIABLES
    )


def global_variable(
    initial_value: Any, validate_shape: bool = True, name: Any = None, use_resource: Any = None
) -> Any:
    """Create a non-trainable variable that checkpoints contain.

    The arguments are those of tf.compat.v1.Variable.
    """
    return _make_untrained_variable(
        initial_value, validate_shape, name, use_resource, _Keys.GLOBAL_VARIABLES
    )


def _make_untrained_variable(
    initial_value: Any, validate_shape: bool, name: Any, resource: Any, key: str
) -> Any:
    """Create a non-trainable variable, and add it to the collection `key` only."""
    return v1.Variable(
        initial_value,
        trainable=False,
        collections=[key],
        validate_shape=validate_shape,
        name=name,
        use_resource=resource,
    )


def zero_initializer(ref: Any, use_locking: bool = True, name: str = "zero_initializer") -> Any:
    """Return an op that sets a variable to zeros."""
    return v1.assign(ref, tf.zeros(ref.get_shape(), ref.dtype.base_dtype), name=name)


def get_variable_full_name(var: Any) -> str:
    """Return the name under which a checkpoint stores a variable."""
    return str(find_private_attribute(var, "_shared_name") or var.op.name)


def assert_or_get_global_step(graph: Any = None, global_step_tensor: Any = None) -> Any:
    """Check and return global_step_tensor; if it is None, return the graph's global step."""
    if global_step_tensor is None:
        return v1.train.get_global_step(graph)
    v1.train.assert_global_step(global_step_tensor)
    return global_step_tensor


def add_model_variable(var: Any) -> None:
    """Add a variable to tf.GraphKeys.MODEL_VARIABLES."""
    if not any(variable is var for variable in v1.get_collection(_Keys.MODEL_VARIABLES)):
        v1.add_to_collection(_Keys.MODEL_VARIABLES, var)


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = _Keys.GLOBAL_VARIABLES
) -> list[Any]:
    """Return the variables in a collection, filtered by scope and suffix.

    Args:
      scope: a variable scope, or a regular expression that matches the beginning of names; None
        for all variables.
      suffix: the end of the variables' names, such as "weights"; None for all variables.
    """
    variables = v1.get_collection(collection, getattr(scope, "name", scope))
    if suffix is None:
        return list(variables)
    return [variable for variable in variables if variable.op.name.endswith(suffix.split(":")[0])]


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Return the variables in tf.GraphKeys.MODEL_VARIABLES, filtered by scope and suffix.

    Args:
      scope: a variable scope, or a regular expression that matches the beginning of names; None
        for all variables.
      suffix: the end of the variables' names, such as "weights"; None for all variables.
    """
    return get_variables(scope, suffix, _Keys.MODEL_VARIABLES)


def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Return the variables in tf.GraphKeys.LOCAL_VARIABLES, filtered by scope and suffix.

    Args:
      scope: a variable scope, or a regular expression that matches the beginning of names; None
        for all variables.
      suffix: the end of the variables' names, such as "weights"; None for all variables.
    """
    return get_variables(scope, suffix, _Keys.LOCAL_VARIABLES)


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Return the variables in tf.GraphKeys.TRAINABLE_VARIABLES, filtered by scope and suffix.

    Args:
      scope: a variable scope, or a regular expression that matches the beginning of names; None
        for all variables.
      suffix: the end of the variables' names, such as "weights"; None for all variables.
    """
    return get_variables(scope, suffix, _Keys.TRAINABLE_VARIABLES)


def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """Return the global variables whose names end in a suffix.

    Args:
      scope: a variable scope, or a regular expression that matches the beginning of names; None
        for all variables.
    """
    return get_variables(scope, suffix)


def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """Return the global variables with the given name, in all scopes.

    Args:
      given_name: the name of the variables, or the last parts of their full names: "weights"
        matches "weights" and "layer/weights", but not "my_weights".
      scope: a variable scope, or a regular expression that matches the beginning of names; None
        for all variables.
    """
    return [
        variable
        for variable in get_variables(scope)
        if f"/{variable.op.name}".endswith(f"/{given_name.split(':')[0]}")
    ]


def get_unique_variable(var_op_name: str) -> Any:
    """Return the global variable with the given full name, such as "scope/weights"."""
    variables = [variable for variable in v1.global_variables() if variable.op.name == var_op_name]
    if len(variables) != 1:
        raise InvalidSetting(
            f"get_unique_variable({var_op_name!r}) found {len(variables)} variables of that name. "
            f"Pass the full name of exactly one variable."
        )
    return variables[0]


def get_variables_to_restore(include: Any = None, exclude: Any = None) -> list[Any]:
    """Return the global variables in the scopes `include`, without those in the scopes `exclude`.

    Args:
      include: list of the scopes whose variables are returned; None for all variables.
      exclude: list of the scopes whose variables are not returned; None for no such scope.

    Raises:
      InvalidSetting: include or exclude is not a list or a tuple.
    """
    for scopes in (include, exclude):
        if scopes is not None and not isinstance(scopes, (list, tuple)):
            raise InvalidSetting(
                f"get_variables_to_restore got {scopes!r}. Pass a list of scopes, or None."
            )
    scopes = [None] if include is None else include
    included = {id(v): v for scope in scopes for v in get_variables(scope)}
    excluded = {id(v) for scope in exclude or () for v in get_variables(scope)}
    return [variable for key, variable in included.items() if key not in excluded]


def filter_variables(
    var_list: Any,
    include_patterns: Any = None,
    exclude_patterns: Any = None,
    reg_search: bool = True,
) -> list[Any]:
    """Return the variables whose names match a pattern to include, and no pattern to exclude.

    Args:
      include_patterns: regular expressions; None or an empty list includes all variables.
      exclude_patterns: regular expressions; None or an empty list excludes no variable.
    """
    matches: Callable[..., Any] = re.search if reg_search else re.match

    def matches_any(patterns: Any, name: str) -> bool:
        return any(matches(pattern, name) for pattern in patterns or ())

    return [
        variable
        for variable in var_list
        if (not include_patterns or matches_any(include_patterns, variable.op.name))
        and not matches_any(exclude_patterns, variable.op.name)
    ]
