"""Finds nodes that a TPU cannot run, or whose results on a TPU differ from those on a CPU."""

import math
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.graph.graph_walk import (
    HOST_ATTRIBUTE,
    TPU_CALL,
    called_functions,
    outside_cluster_mask,
)
from tpuserve.graph.references import node_name
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.rules import op_table, xla_kernels
from tpuserve.saved_model.stablehlo_modules import CALL_MODULE, describe_module
from tpuserve.tensorflow_internals import op_def_registry
from tpuserve.verification.verification_report import Hazard
from tpuserve.verification.xla_refusals import XlaRefusals


@dataclass(frozen=True)
class PlacedNode:
    """A node that a signature runs, with its function and its device.

    Attributes:
      function: Name of the function that has the node; empty for the main graph.
      computation: Name of the TPU computation that runs the node: the function that a
        TPUPartitionedCall op calls. Empty for nodes outside of TPU computations.
    """

    node: Any
    function: str
    computation: str
    on_tpu: bool


def place_nodes(meta_graph_def: Any, signature_name: str) -> list[PlacedNode]:
    """Return the nodes that a signature runs: all that its outputs depend on.

    The nodes of called functions are included.
    """
    graph_def = meta_graph_def.graph_def
    functions = {function.signature.name: function for function in graph_def.library.function}
    outputs = meta_graph_def.signature_def[signature_name].outputs.values()
    placed = [
        PlacedNode(node, "", "", on_tpu=False)
        for node in _reachable_nodes(graph_def.node, (output.name for output in outputs))
    ]
    visited: set[tuple[str, str, bool]] = set()
    pending = deque(placed)
    while pending:
        caller = pending.popleft()
        for name in {*called_functions(caller.node), caller.node.op} & functions.keys():
            is_computation = caller.node.op == TPU_CALL and not caller.on_tpu
            computation = name if is_computation else caller.computation
            on_tpu = caller.on_tpu or is_computation
            if (name, computation, on_tpu) not in visited:
                visited.add((name, computation, on_tpu))
                inner = list(
                    _place_function(
                        functions[name], computation, on_tpu, is_outermost=is_computation
                    )
                )
                placed += inner
                pending += inner
    return placed


def _place_function(
    function: Any, computation: str, on_tpu: bool, *, is_outermost: bool
) -> Iterator[PlacedNode]:
    """Yield the nodes that a called function runs: all that its results depend on."""
    results = [*function.ret.values(), *function.control_ret.values()]
    nodes = function.node_def
    is_outside = outside_cluster_mask(nodes) if is_outermost else [False] * len(nodes)
    outside = {node.name for node, outside in zip(nodes, is_outside, strict=True) if outside}
    for node in _reachable_nodes(nodes, results):
        is_on_host = HOST_ATTRIBUTE in node.attr or node.name in outside
        yield PlacedNode(node, function.signature.name, computation, on_tpu and not is_on_host)


def _reachable_nodes(nodes: Iterable[Any], results: Iterable[str]) -> list[Any]:
    """Return the nodes on which some tensors depend, in the order of the graph."""
    by_name: Mapping[str, Any] = {node.name: node for node in nodes}

    reachable = find_reachable(
        map(node_name, results),
        lambda name: map(node_name, by_name[name].input) if name in by_name else None,
    )
    return [node for node in by_name.values() if node.name in reachable]


# The maximum total size, in bytes, of the constants of a TPU computation. The compiled program
# contains the constants and is a protobuf message, which cannot be larger than 2 GiB.
LARGEST_CONSTANTS = 2 * 2**30

# Prefixes of the types of XLA's own ops and of TensorFlow's internal ops. They are not reported as
# uncompilable, because the TPU compiler supports them.
_XLA_AND_INTERNAL_PREFIXES = ("Xla", "_")
_RANDOM_OPS = re.compile(
    r"(Anonymous)?(Random|ParameterizedTruncated|Truncated)(Uniform|Standard|Normal|Gamma|Poisson|"
    r"Shuffle|Index)\w*|Multinomial|Stateful(Uniform|Standard|Truncated|Random)\w*|"
    r"Rng(ReadAnd)?Skip|RandomShuffle"
)
_DYNAMIC_SHAPE_OPS = re.compile(
    r"Where|Unique(V2|WithCounts|WithCountsV2)?|NonMaxSuppression\w*|DynamicPartition|ListDiff|"
    r"CombinedNonMaxSuppression"
)
# Ops that return their inputs unchanged, so that they need no XLA kernel.
_FORWARDING_OPS = ("Identity", "IdentityN")
_PLACEHOLDERS = ("Placeholder", "PlaceholderWithDefault")
_ADVICE = "Wrap the op in tpu.outside_compilation, or move it in front of the computation."


def find_uncompilable_ops(
    nodes: Sequence[PlacedNode], compiled: Sequence[PlacedNode], refusals: XlaRefusals
) -> Iterator[Hazard]:
    """Find the ops that XLA cannot compile.

    The error of a compilation names only the first uncompilable op of a TPU computation.
    """
    compiled_names = {(placed.function, placed.node.name) for placed in compiled}
    reported = set()
    for placed in nodes:
        node = placed.node
        is_refused = node.name in refusals.unsupported_ops
        is_unknown = _is_computation(node) and not _is_compilable(node)
        if not placed.on_tpu or not (is_refused or is_unknown):
            continue
        reported.add(node.name)
        if (placed.function, node.name) in compiled_names:
            # The op has no XLA kernel, but XLA has compiled its computation. So TensorFlow must
            # have removed the op before, for example by constant folding. Report only a warning.
            yield _node_hazard(
                placed,
                "uncompilable",
                "warning",
                f"XLA cannot compile {node.op}; TensorFlow computed it before XLA compiled the "
                f"rest. A TPU may refuse the op. {_ADVICE}",
            )
        else:
            yield _node_hazard(
                placed, "uncompilable", "error", f"XLA cannot compile {node.op}. {_ADVICE}"
            )
    for name, refused in refusals.unsupported_ops.items():
        if name not in reported:
            yield Hazard(
                "uncompilable",
                "error",
                f"XLA cannot compile {refused.op}. {_ADVICE}",
                op=refused.op,
                node=name,
            )


def find_other_platforms(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """Find StableHLO modules that are in TPU computations but were lowered for other platforms."""
    for placed in nodes:
        if placed.on_tpu and placed.node.op == CALL_MODULE:
            module = describe_module(placed.node)
            if not module.runs_on("TPU"):
                yield _node_hazard(placed, "platform", "error", module.why_not_on("TPU"))


def find_large_constants(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """Find the TPU computations whose constants are too large for a compiled program."""
    by_computation: dict[str, list[tuple[int, PlacedNode]]] = defaultdict(list)
    for placed in nodes:
        if placed.on_tpu and placed.node.op == "Const":
            by_computation[placed.computation].append((_constant_bytes(placed.node), placed))
    for computation, sizes in by_computation.items():
        total = sum(size for size, _ in sizes)
        if total > LARGEST_CONSTANTS:
            size, placed = max(sizes, key=lambda item: item[0])
            yield _node_hazard(
                placed,
                "constants",
                "error",
                f"{computation} holds {total} bytes of constants; a compiled program can hold "
                f"{LARGEST_CONSTANTS}. The largest constant has {size} bytes. Make it a variable.",
            )


def find_strings(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """Find the TPU computations with ops that output strings, which TPUs do not support.

    Ops without an XLA kernel are not reported here: `find_uncompilable_ops` reports them.
    """
    string_nodes = (
        placed
        for placed in nodes
        if placed.on_tpu
        and _has_output_type(placed.node, (tf.string.as_datatype_enum,))
        and _is_computation(placed.node)
        and _is_compilable(placed.node)
    )
    for group in _group_by_computation(string_nodes):
        yield _node_hazard(
            group[0],
            "strings",
            "warning",
            f"strings within {group[0].computation}, in {_summarize_ops(group)}: a TPU has no "
            f"strings, and XLA refuses those that it cannot fold away. Move them in front of the "
            f"computation.",
        )


def find_random_ops(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """Find the ops that draw random numbers, with which two runs have different results."""
    for placed in nodes:
        if _RANDOM_OPS.fullmatch(placed.node.op):
            yield _node_hazard(
                placed,
                "random",
                "warning",
                f"{placed.node.op} draws random numbers: the two metagraphs give different "
                f"results, and for one seed a TPU draws other numbers than a CPU. Do not use the "
                f"op for serving.",
            )


def find_dynamic_shapes(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """Find the ops on the TPU whose output shape depends on the values of their inputs."""
    for placed in nodes:
        if placed.on_tpu and _DYNAMIC_SHAPE_OPS.fullmatch(placed.node.op):
            yield _node_hazard(
                placed,
                "dynamic_shape",
                "warning",
                f"the output shape of {placed.node.op} depends on values. XLA compiles the op for "
                f"a CPU; for a TPU it may refuse the op, or pad the output to its largest size. "
                f"Run `tpuserve compile` to find out.",
            )


def find_64_bit_types(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """Find the TPU computations with 64-bit numbers, which TPU hardware does not support."""
    nodes = [placed for placed in nodes if placed.on_tpu and _is_computation(placed.node)]
    int64_types = (tf.int64.as_datatype_enum, tf.uint64.as_datatype_enum)
    float64_types = (tf.float64.as_datatype_enum, tf.complex128.as_datatype_enum)
    float64_nodes = (placed for placed in nodes if _has_output_type(placed.node, float64_types))
    for group in _group_by_computation(float64_nodes):
        yield _node_hazard(
            group[0],
            "float64",
            "warning",
            f"float64 within {group[0].computation}, in {_summarize_ops(group)}: a TPU computes "
            f"with pairs of float32 instead, which is many times slower, has the range of float32 "
            f"and less precision than on a CPU. Cast to float32.",
        )
    int64_nodes = (placed for placed in nodes if _has_output_type(placed.node, int64_types))
    for group in _group_by_computation(int64_nodes):
        yield _node_hazard(
            group[0],
            "int64",
            "note",
            f"int64 within {group[0].computation}, in {_summarize_ops(group)}: a TPU computes with "
            f"pairs of 32-bit numbers, which is exact but slower. Use int32 where the values fit.",
        )


def _is_compilable(node: Any) -> bool:
    # A node whose op is the name of a function of the graph calls that function. Do not report the
    # node: the nodes of the called function are checked separately.
    is_op = op_def_registry.get(node.op) is not None
    return not is_op or node.op in _PLACEHOLDERS or xla_kernels.has_xla_kernel(node)


def _is_computation(node: Any) -> bool:
    is_known = op_table.is_tpu_op(node.op) or node.op.startswith(_XLA_AND_INTERNAL_PREFIXES)
    return node.op not in _FORWARDING_OPS and not is_known


def _has_output_type(node: Any, types: Sequence[int]) -> bool:
    return any(dtype in types for dtype in _output_types(node))


def _output_types(node: Any) -> list[int]:
    """Return the dtypes of a node's outputs as numbers of tensorflow.DataType."""
    definition = op_def_registry.get(node.op)
    if definition is None:
        return []
    defaults = {attribute.name: attribute.default_value for attribute in definition.attr}
    types: list[int] = []
    for output in definition.output_arg:
        # If the node does not have the attribute, use the op's default value: exporters leave out
        # attributes with default values.
        name = output.type_list_attr or output.type_attr
        value = node.attr[name] if name in node.attr else defaults.get(name)
        if output.type_list_attr:
            types += value.list.type if value is not None else []
        elif output.type_attr:
            types += [value.type] if value is not None else []
        else:
            types.append(output.type)
    return types


def _constant_bytes(node: Any) -> int:
    """Return the size in bytes of the value of a Const node in a compiled program."""
    tensor = node.attr["value"].tensor
    if tensor.dtype == tf.string.as_datatype_enum:
        return sum(map(len, tensor.string_val))
    # Compute the size from the shape and not from the stored bytes. A GraphDef stores a repeated
    # value once, but a compiled program has all elements.
    count = math.prod(dimension.size for dimension in tensor.tensor_shape.dim)
    return int(count * tf.as_dtype(tensor.dtype).size)


def _group_by_computation(nodes: Iterable[PlacedNode]) -> Iterable[list[PlacedNode]]:
    groups: dict[str, list[PlacedNode]] = defaultdict(list)
    for placed in nodes:
        groups[placed.computation].append(placed)
    return groups.values()


def _summarize_ops(nodes: Sequence[PlacedNode]) -> str:
    """Return the number of nodes and up to four of their op types as text for a message."""
    types = sorted({placed.node.op for placed in nodes})
    count = f"{len(nodes)} op" + ("s" if len(nodes) > 1 else "")
    more = f" and {len(types) - 4} other types" if len(types) > 4 else ""
    return f"{count} ({', '.join(types[:4])}{more})"


def _node_hazard(placed: PlacedNode, kind: str, severity: Any, message: str) -> Hazard:
    return Hazard(
        kind, severity, message, op=placed.node.op, node=placed.node.name, function=placed.function
    )
