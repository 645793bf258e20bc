"""What a graph does with the strings that it is fed: the tf.Examples that it parses them as."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tpuserve.saved_model.metagraph import called_functions

# Their first input picks the function; the function does not get it.
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")


@dataclass(frozen=True)
class ExampleFeature:
    """A feature of a tf.Example that a model looks for.

    Attributes:
      key: its name there.
      dtype: number of its type: that of float32, int64 or string.
      size: how many values it has to have; None where any number will do.
    """

    key: str
    dtype: int
    size: int | None


@dataclass(frozen=True)
class StringInputUse:
    """What becomes of a string input.

    Attributes:
      features: those of the tf.Example that it is parsed as; empty where it is not parsed.
      is_read_as_number: whether it is turned into a number by its digits.
    """

    features: tuple[ExampleFeature, ...] = ()
    is_read_as_number: bool = False


@dataclass(eq=False)
class _Scope:
    """The main graph, or one call of a function.

    Attributes:
      nodes: by name.
      consumers: name of a node or argument → the nodes that take it, with the input's position.
      arguments: name → where its value comes from, in the caller's scope.
    """

    nodes: Mapping[str, Any]
    consumers: Mapping[str, list[tuple[Any, int]]]
    arguments: "Mapping[str, tuple[_Scope, str]]" = field(default_factory=dict)


def infer_string_input(graph_def: Any, tensor_name: str) -> StringInputUse:
    """What becomes of the strings of a tensor, followed through ops and called functions.

    Args:
      graph_def: TensorFlow's GraphDef.
      tensor_name: that of a placeholder, "examples:0".
    """
    functions = {each.signature.name: each for each in graph_def.library.function}
    features: dict[str, ExampleFeature] = {}
    is_number = False
    pending = deque([(_scope(graph_def.node), tensor_name.partition(":")[0])])
    # A function is entered once per argument: calls in a circle would have no end.
    seen: set[tuple[_Scope, str]] = set()
    entered: set[tuple[str, str]] = set()
    while pending:
        scope, name = pending.popleft()
        if (scope, name) in seen:
            continue
        seen.add((scope, name))
        for node, position in scope.consumers.get(name, []):
            read = _PARSERS.get(node.op)
            if read is not None:
                found = read(node, scope) if position == 0 else []
                features.update({each.key: each for each in found if each.key not in features})
                continue
            is_number |= node.op == "StringToNumber"
            pending.append((scope, node.name))
            for function, argument in _calls(node, position, functions):
                if (function.signature.name, argument) not in entered:
                    entered.add((function.signature.name, argument))
                    pending.append((_called(function, node, scope), argument))
    return StringInputUse(tuple(features.values()), is_number)


def _scope(
    nodes: Iterable[Any], arguments: Mapping[str, tuple[_Scope, str]] | None = None
) -> _Scope:
    consumers: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    by_name = {}
    for node in nodes:
        by_name[node.name] = node
        for position, reference in enumerate(_data_inputs(node)):
            consumers[reference.partition(":")[0]].append((node, position))
    return _Scope(by_name, consumers, arguments or {})


def _data_inputs(node: Any) -> list[str]:
    return [each for each in node.input if not each.startswith("^")]


def _calls(node: Any, position: int, functions: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The functions that a node calls, and the name that its input of a position has there."""
    index = position - 1 if node.op in _BRANCHES else position
    found = [functions[each] for each in (*called_functions(node), node.op) if each in functions]
    return [
        (each, each.signature.input_arg[index].name)
        for each in found
        if 0 <= index < len(each.signature.input_arg)
    ]


def _called(function: Any, node: Any, scope: _Scope) -> _Scope:
    inputs = _data_inputs(node)[1 if node.op in _BRANCHES else 0 :]
    names = [each.name for each in function.signature.input_arg]
    return _scope(
        function.node_def,
        {name: (scope, each) for name, each in zip(names, inputs, strict=False)},
    )


def _constant(reference: str, scope: _Scope) -> list[str]:
    """The strings of a constant, found through what hands it on; none where it is none."""
    name = reference.partition(":")[0]
    while True:
        if name in scope.arguments:
            scope, reference = scope.arguments[name]
        elif name in scope.nodes and scope.nodes[name].op == "Identity":
            reference = scope.nodes[name].input[0]
        else:
            break
        name = reference.partition(":")[0]
    node = scope.nodes.get(name)
    if node is None or node.op != "Const":
        return []
    constant = tf.make_ndarray(node.attr["value"].tensor)
    return [each.decode(errors="replace") for each in constant.reshape(-1)]


def _parse_example_v2(node: Any, scope: _Scope) -> list[ExampleFeature]:
    sparse, dense, ragged = (_constant(each, scope) for each in _data_inputs(node)[2:5])
    return _features(
        (sparse, node.attr["sparse_types"].list.type),
        (ragged, node.attr["ragged_value_types"].list.type),
        dense=dense,
        node=node,
    )


def _parse_example(node: Any, scope: _Scope) -> list[ExampleFeature]:
    count = node.attr["Nsparse"].i
    keys = _data_inputs(node)[2:]
    sparse = [key for each in keys[:count] for key in _constant(each, scope)]
    of_dense = keys[count : count + node.attr["Ndense"].i]
    dense = [key for each in of_dense for key in _constant(each, scope)]
    return _features((sparse, node.attr["sparse_types"].list.type), dense=dense, node=node)


def _parse_single_example(node: Any, _: _Scope) -> list[ExampleFeature]:
    sparse, dense = (
        [each.decode(errors="replace") for each in node.attr[name].list.s]
        for name in ("sparse_keys", "dense_keys")
    )
    return _features((sparse, node.attr["sparse_types"].list.type), dense=dense, node=node)


def _features(
    *of_any_length: tuple[list[str], Iterable[int]], dense: list[str], node: Any
) -> list[ExampleFeature]:
    found = [
        ExampleFeature(key, dtype, None)
        for keys, types in of_any_length
        for key, dtype in zip(keys, types, strict=False)
    ]
    types, shapes = node.attr["Tdense"].list.type, node.attr["dense_shapes"].list.shape
    for key, dtype, shape in zip(dense, types, shapes, strict=False):
        size = 1
        for dimension in shape.dim:
            # An open first dimension holds any number of rows; one will do.
            size *= 1 if dimension.size < 0 else dimension.size
        found.append(ExampleFeature(key, dtype, size))
    return found


_PARSERS: Mapping[str, Callable[[Any, _Scope], list[ExampleFeature]]] = {
    "ParseExampleV2": _parse_example_v2,
    "ParseExample": _parse_example,
    "ParseSingleExample": _parse_single_example,
}
