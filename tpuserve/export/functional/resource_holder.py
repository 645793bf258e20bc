"""The variables and tables that traced functions use, held by one object to be saved."""

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
    """A trackable object that holds each variable and each table of the functions, once.

    Only what the functions use is held, so that an optimizer's variables are not exported.

    Args:
      functions: concrete functions.
      owners: where tables are looked for: trackable objects, and functions with what they refer
        to. Variables need no owner.

    Raises:
      ExportError: a function uses a resource that is found nowhere.
    """
    functions = list(functions)
    variables = {id(each.handle): each for each in _variables(functions)}
    captured = {
        id(outside): outside
        for each in functions
        for outside, _ in each.graph.captures
        if outside.dtype == tf.resource
    }
    resources = {}
    if captured.keys() - variables.keys():
        found = {id(each.resource_handle): each for each in _resources(owners)}
        resources = {each: found[each] for each in captured if each in found}
    if captured.keys() - variables.keys() - resources.keys():
        raise ExportError(
            "the model uses a table or another resource that no owner was found for, so that it "
            "would be missing from the export. Make it an attribute of a tf.Module, and give "
            "that as the model, or a function that refers to it."
        )
    root = tf.__internal__.tracking.AutoTrackable()
    root.variables = list(variables.values())
    root.resources = list(resources.values())
    return root


def _variables(functions: Iterable[Any]) -> Iterator[Any]:
    for function in functions:
        for graph in walk_graphs(function.graph):
            yield from graph.variables


def _resources(owners: Iterable[Any]) -> Iterator[Any]:
    seen: dict[int, Any] = {}
    waiting = list(owners)
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, CapturableResource):
            yield each
        waiting += _referred(each)


def _referred(owner: Any) -> Iterator[Any]:
    """What an object holds, as far as a model would hold a table in it."""
    if isinstance(owner, Trackable):
        yield from tensorflow_internals.get_trackable_children(owner).values()
    if isinstance(owner, tf.types.experimental.PolymorphicFunction):
        yield python_body(owner)
    elif isinstance(owner, MethodType):
        yield from (owner.__self__, owner.__func__)
    elif isinstance(owner, functools.partial):
        yield from (owner.func, *owner.args, *owner.keywords.values())
    elif isinstance(owner, FunctionType):
        yield from _of_function(owner)
    elif isinstance(owner, (list, tuple)):
        yield from owner
    elif isinstance(owner, dict):
        yield from owner.values()
    elif callable(owner) and not isinstance(owner, (type, Trackable)):
        yield from getattr(owner, "__dict__", {}).values()


def _of_function(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # A name that has no value yet.
            continue
    yield from function.__defaults__ or ()
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        # Not into libraries: a table is the program's own.
        if isinstance(value, FunctionType) and value.__globals__ is not function.__globals__:
            continue
        yield value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
