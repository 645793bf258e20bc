"""Collects the variables and tables that traced functions use, so that they can be saved."""

import functools
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

import tensorflow as tf

from tpuserve import tensorflow_internals
from tpuserve.errors import ExportError
from tpuserve.export.function_walk import walk_graphs
from tpuserve.export.functional.function import python_body
from tpuserve.tensorflow_internals import CapturableResource, Trackable


def build_resource_holder(functions: Iterable[Any], owners: Iterable[Any]) -> Any:
    """Build a trackable object that refers to all variables and tables that functions use.

    TensorFlow saves the variables and tables of this object.
    """
    functions = list(functions)
    variables = {id(variable.handle): variable for variable in _used_variables(functions)}
    captured_ids = [
        id(tensor)
        for function in functions
        for tensor, _ in function.graph.captures
        if tensor.dtype == tf.resource
    ]
    # A dict keeps the order of the captures, and a set does not. Every export of a model thereby
    # stores its resources in the same order.
    missing = dict.fromkeys(handle for handle in captured_ids if handle not in variables)
    resources = {}
    if missing:
        by_handle = {id(resource.resource_handle): resource for resource in _find_resources(owners)}
        resources = {handle: by_handle[handle] for handle in missing if handle in by_handle}
    if missing.keys() - resources.keys():
        raise ExportError(
            "the model uses a table or another resource that no owner was found for, so it would "
            "be missing from the export. Make it an attribute of a tf.Module, and export that "
            "module, or a function that refers to it."
        )
    root = tf.__internal__.tracking.AutoTrackable()
    root.variables = list(variables.values())
    root.resources = list(resources.values())
    return root


def _used_variables(functions: Iterable[Any]) -> Iterator[Any]:
    for function in functions:
        for graph in walk_graphs(function.graph):
            yield from graph.variables


def _find_resources(owners: Iterable[Any]) -> Iterator[Any]:
    """Yield the tables and other CapturableResources that `owners` refer to, even indirectly."""
    visited: dict[int, Any] = {}
    pending = list(owners)
    while pending:
        owner = pending.pop()
        if id(owner) in visited:
            continue
        # Keep a reference to the object in `visited`, so that Python does not reuse its id.
        visited[id(owner)] = owner
        if isinstance(owner, CapturableResource):
            yield owner
        pending += _referenced_objects(owner)


def _referenced_objects(owner: Any) -> Iterator[Any]:
    """Yield the objects that an object refers to directly, to be searched for tables."""
    if isinstance(owner, Trackable):
        yield from tensorflow_internals.get_trackable_children(owner).values()
    if isinstance(owner, tf.types.experimental.PolymorphicFunction):
        yield python_body(owner)
    elif isinstance(owner, MethodType):
        yield from (owner.__self__, owner.__func__)
    elif isinstance(owner, functools.partial):
        yield from (owner.func, *owner.args, *owner.keywords.values())
    elif isinstance(owner, FunctionType):
        yield from _objects_of_function(owner)
    elif isinstance(owner, (list, tuple)):
        yield from owner
    elif isinstance(owner, dict):
        yield from owner.values()
    elif callable(owner) and not isinstance(owner, (type, Trackable)):
        yield from getattr(owner, "__dict__", {}).values()


def _objects_of_function(function: FunctionType) -> Iterator[Any]:
    """Yield the objects that a Python function refers to: in its closure, defaults and globals."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # Skip an empty cell of the closure: its variable is not set yet.
            continue
    yield from function.__defaults__ or ()
    for name in _names_in_code(function.__code__):
        value = function.__globals__.get(name)
        # Do not search functions from other modules: tables are expected in the user's own module.
        if isinstance(value, FunctionType) and value.__globals__ is not function.__globals__:
            continue
        yield value


def _names_in_code(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes that a code object and nested ones use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in_code(constant)
