"""Infers from a graph what its string inputs contain: tf.Examples, pictures, numbers or text."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tpuserve.graph.references import data_inputs, node_name
from tpuserve.samples.values import PICTURE_SIZE
from tpuserve.saved_model.metagraph import called_functions

_PICTURE_DECODERS = ("DecodeImage", "DecodeJpeg", "DecodePng", "DecodeAndCropJpeg")
# Ops that call one of several functions. Their first input selects the function. Only the other
# inputs are passed to the function as arguments.
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")


@dataclass(frozen=True)
class ParsedFeature:
    """A feature of a tf.Example that a model parses.

    Attributes:
      dtype: the DataType enum value of float32, int64 or string.
      size: the number of values; None if any number is valid.
    """

    key: str
    dtype: int
    size: int | None


@dataclass(frozen=True)
class StringInputUse:
    """The use of a string input by a graph.

    If all attributes have their default values, the input is plain text.

    Attributes:
      features: the features that are parsed if the strings are tf.Examples; otherwise empty.
      is_picture: whether the strings are decoded as the bytes of picture files.
    """

    features: tuple[ParsedFeature, ...] = ()
    is_read_as_number: bool = False
    is_picture: bool = False

    @property
    def values_per_string(self) -> int:
        """How many elements a string counts for: a tf.Example for its values, other strings for 1.

        A feature of variable length counts for 1, and a picture for its pixels.
        """
        if self.features:
            return sum(1 if feature.size is None else feature.size for feature in self.features)
        return PICTURE_SIZE**2 if self.is_picture else 1


@dataclass(eq=False)
class _Scope:
    """The nodes of the main graph, or of a function's body for one call of the function."""

    nodes: Mapping[str, Any]
    consumers: Mapping[str, list[tuple[Any, int]]]
    arguments: "Mapping[str, tuple[_Scope, str]]" = field(default_factory=dict)


def infer_string_input(graph_def: Any, tensor_name: str) -> StringInputUse:
    """Infer how a graph uses the strings of an input.

    The search follows the tensor through ops and called functions up to ops that parse or decode
    strings.

    Args:
      tensor_name: the name of the tensor of a placeholder, for example "examples:0".
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    features: dict[str, ParsedFeature] = {}
    is_number = is_picture = False
    pending = deque([(_scope(graph_def.node), node_name(tensor_name))])
    # Follow each argument of a function only once. Otherwise the search would not end if functions
    # call themselves.
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
                parsed = read(node, scope) if position == 0 else []
                for key, feature in {feature.key: feature for feature in parsed}.items():
                    features.setdefault(key, feature)
                continue
            is_number |= node.op == "StringToNumber"
            is_picture |= node.op in _PICTURE_DECODERS
            pending.append((scope, node.name))
            for function, argument in _calls(node, position, functions):
                if (function.signature.name, argument) not in entered:
                    entered.add((function.signature.name, argument))
                    pending.append((_function_scope(function, node, scope), argument))
    return StringInputUse(tuple(features.values()), is_number, is_picture)


def _scope(
    nodes: Iterable[Any], arguments: Mapping[str, tuple[_Scope, str]] | None = None
) -> _Scope:
    consumers: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    by_name = {}
    for node in nodes:
        by_name[node.name] = node
        for position, reference in enumerate(data_inputs(node)):
            consumers[node_name(reference)].append((node, position))
    return _Scope(by_name, consumers, arguments or {})


def _calls(node: Any, position: int, functions: Mapping[str, Any]) -> list[tuple[Any, str]]:
    index = position - 1 if node.op in _BRANCHES else position
    names = (*called_functions(node), node.op)
    called = [functions[name] for name in names if name in functions]
    return [
        (function, function.signature.input_arg[index].name)
        for function in called
        if 0 <= index < len(function.signature.input_arg)
    ]


def _function_scope(function: Any, node: Any, scope: _Scope) -> _Scope:
    inputs = data_inputs(node)[1 if node.op in _BRANCHES else 0 :]
    names = [argument.name for argument in function.signature.input_arg]
    return _scope(
        function.node_def,
        {name: (scope, tensor) for name, tensor in zip(names, inputs, strict=False)},
    )


def _constant(reference: str, scope: _Scope) -> list[str]:
    """Return the strings of the Const node that a tensor comes from."""
    name = node_name(reference)
    # Stop at a tensor that was visited before: an invalid graph may have a cycle.
    seen: set[tuple[_Scope, str]] = set()
    while (scope, name) not in seen:
        seen.add((scope, name))
        if name in scope.arguments:
            scope, reference = scope.arguments[name]
        elif name in scope.nodes and scope.nodes[name].op == "Identity":
            reference = scope.nodes[name].input[0]
        else:
            break
        name = node_name(reference)
    node = scope.nodes.get(name)
    if node is None or node.op != "Const":
        return []
    constant = tf.make_ndarray(node.attr["value"].tensor)
    return [text.decode(errors="replace") for text in constant.reshape(-1)]


def _parse_example_v2(node: Any, scope: _Scope) -> list[ParsedFeature]:
    sparse, dense, ragged = (_constant(name, scope) for name in data_inputs(node)[2:5])
    return _features(
        (sparse, node.attr["sparse_types"].list.type),
        (ragged, node.attr["ragged_value_types"].list.type),
        dense=dense,
        node=node,
    )


def _parse_example(node: Any, scope: _Scope) -> list[ParsedFeature]:
    count = node.attr["Nsparse"].i
    keys = data_inputs(node)[2:]
    sparse = [key for name in keys[:count] for key in _constant(name, scope)]
    dense_names = keys[count : count + node.attr["Ndense"].i]
    dense = [key for name in dense_names for key in _constant(name, scope)]
    return _features((sparse, node.attr["sparse_types"].list.type), dense=dense, node=node)


def _parse_single_example(node: Any, _: _Scope) -> list[ParsedFeature]:
    sparse, dense = (
        [key.decode(errors="replace") for key in node.attr[name].list.s]
        for name in ("sparse_keys", "dense_keys")
    )
    return _features((sparse, node.attr["sparse_types"].list.type), dense=dense, node=node)


def _features(
    *variable_length: tuple[list[str], Iterable[int]], dense: list[str], node: Any
) -> list[ParsedFeature]:
    features = [
        ParsedFeature(key, dtype, None)
        for keys, types in variable_length
        for key, dtype in zip(keys, types, strict=False)
    ]
    types, shapes = node.attr["Tdense"].list.type, node.attr["dense_shapes"].list.shape
    for key, dtype, shape in zip(dense, types, shapes, strict=False):
        size = 1
        for dimension in shape.dim:
            # Take 1 for the unknown first dimension of a dense feature of variable length. Any size
            # is valid.
            size *= 1 if dimension.size < 0 else dimension.size
        features.append(ParsedFeature(key, dtype, size))
    return features


_PARSERS: Mapping[str, Callable[[Any, _Scope], list[ParsedFeature]]] = {
    "ParseExampleV2": _parse_example_v2,
    "ParseExample": _parse_example,
    "ParseSingleExample": _parse_single_example,
}
