"""Variables of models: made in collections, and found in them."""

import contextlib
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope

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
    """A variable of the present scope, made or reused.

    Args:
      device: where it is placed; a string or a function of the op; None for the present place.
      name, shape, dtype, initializer, regularizer, trainable, collections, caching_device,
        partitioner, custom_getter, use_resource, synchronization, aggregation: see
        tf.compat.v1.get_variable.
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
    """A variable that is also in tf.GraphKeys.MODEL_VARIABLES; see `variable`."""
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
    """A variable that is in no checkpoint."""
    return _make_untrained_variable(
        initial_value, validate_shape, name, use_resource, _Keys.LOCAL_VARIABLES
    )


def global_variable(
    initial_value: Any, validate_shape: bool = True, name: Any = None, use_resource: Any = None
) -> Any:
    """A variable that is in checkpoints, and not trained."""
    return _make_untrained_variable(
        initial_value, validate_shape, name, use_resource, _Keys.GLOBAL_VARIABLES
    )


def _make_untrained_variable(
    initial_value: Any, validate_shape: bool, name: Any, resource: Any, key: str
) -> Any:
    return v1.Variable(
        initial_value,
        trainable=False,
        collections=[key],
        validate_shape=validate_shape,
        name=name,
        use_resource=resource,
    )


def zero_initializer(ref: Any, use_locking: bool = True, name: str = "zero_initializer") -> Any:
    """An op that sets a variable to zeros.

    Args:
      ref: the variable.
      use_locking: not needed here.
      name: of the op.
    """
    return v1.assign(ref, tf.zeros(ref.get_shape(), ref.dtype.base_dtype), name=name)


def get_variable_full_name(var: Any) -> str:
    """The name that a checkpoint has a variable by."""
    return str(getattr(var, "_shared_name", None) or var.op.name)


def assert_or_get_global_step(graph: Any = None, global_step_tensor: Any = None) -> Any:
    """The given global step, once it is checked, or else the graph's, which may be None."""
    if global_step_tensor is None:
        return v1.train.get_global_step(graph)
    v1.train.assert_global_step(global_step_tensor)
    return global_step_tensor


def add_model_variable(var: Any) -> None:
    """Puts a variable into tf.GraphKeys.MODEL_VARIABLES."""
    if not any(each is var for each in v1.get_collection(_Keys.MODEL_VARIABLES)):
        v1.add_to_collection(_Keys.MODEL_VARIABLES, var)


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = _Keys.GLOBAL_VARIABLES
) -> list[Any]:
    """The variables of a collection.

    Args:
      scope: a scope, or the regular expression that names begin with; None for all.
      suffix: what their names end in: "weights"; None for all.
      collection: its key.
    """
    found = v1.get_collection(collection, getattr(scope, "name", scope))
    if suffix is None:
        return list(found)
    return [each for each in found if each.op.name.endswith(suffix.split(":")[0])]


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Those of tf.GraphKeys.MODEL_VARIABLES; see `get_variables`."""
    return get_variables(scope, suffix, _Keys.MODEL_VARIABLES)


def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Those of tf.GraphKeys.LOCAL_VARIABLES; see `get_variables`."""
    return get_variables(scope, suffix, _Keys.LOCAL_VARIABLES)


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Those of tf.GraphKeys.TRAINABLE_VARIABLES; see `get_variables`."""
    return get_variables(scope, suffix, _Keys.TRAINABLE_VARIABLES)


def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """Global variables whose names end so."""
    return get_variables(scope, suffix)


def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """Global variables whose names are that, or end in a slash and that."""
    return [
        each
        for each in get_variables(scope)
        if f"/{each.op.name}".endswith(f"/{given_name.split(':')[0]}")
    ]


def get_unique_variable(var_op_name: str) -> Any:
    """The one variable of that full name.

    Raises:
      InvalidSetting: there is none, or several.
    """
    found = [each for each in v1.global_variables() if each.op.name == var_op_name]
    if len(found) != 1:
        raise InvalidSetting(
            f"get_unique_variable({var_op_name!r}) found {len(found)} variables of that name. "
            f"Give the full name of one."
        )
    return found[0]


def get_variables_to_restore(include: Any = None, exclude: Any = None) -> list[Any]:
    """Global variables of some scopes and not of others.

    Args:
      include: scopes; None for all.
      exclude: scopes; None for none.
    """
    for each in (include, exclude):
        if each is not None and not isinstance(each, (list, tuple)):
            raise InvalidSetting(f"get_variables_to_restore got {each!r}. Give a list of scopes.")
    scopes = [None] if include is None else include
    wanted = {id(v): v for scope in scopes for v in get_variables(scope)}
    unwanted = {id(v) for scope in exclude or () for v in get_variables(scope)}
    return [each for key, each in wanted.items() if key not in unwanted]


def filter_variables(
    var_list: Any,
    include_patterns: Any = None,
    exclude_patterns: Any = None,
    reg_search: bool = True,
) -> list[Any]:
    """Variables whose names match one pattern to include, and none to exclude.

    Args:
      var_list: the variables.
      include_patterns, exclude_patterns: regular expressions; none to include means all.
      reg_search: whether they are looked for anywhere in a name, not only where it begins.
    """
    matches: Callable[..., Any] = re.search if reg_search else re.match

    def is_any(patterns: Any, name: str) -> bool:
        return any(matches(each, name) for each in patterns or ())

    return [
        each
        for each in var_list
        if (not include_patterns or is_any(include_patterns, each.op.name))
        and not is_any(exclude_patterns, each.op.name)
    ]
