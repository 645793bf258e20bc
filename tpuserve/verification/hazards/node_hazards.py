"""Nodes of TPU computations that a TPU cannot run, or runs otherwise than one may think."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tpuserve.verification.hazards import xla_kernels
from tpuserve.verification.hazards.node_placement import PlacedNode
from tpuserve.verification.report import Hazard
from tpuserve.verification.xla_refusals import XlaRefusals

# A computation with its constants is one message, and no message is larger.
LARGEST_CONSTANTS = 2 * 2**30

# What tensorflow.python.tpu leaves in a computation; the compiler of a TPU knows it.
_OF_TPU = re.compile(
    r"TPU\w*|\w*(Infeed|Outfeed)\w*|CrossReplicaSum|AllToAll|CollectivePermute|Xla\w+|_\w+"
)
_RANDOM = re.compile(
    r"(Anonymous)?(Random|ParameterizedTruncated|Truncated)(Uniform|Standard|Normal|Gamma|Poisson|"
    r"Shuffle|Index)\w*|Multinomial|Stateful(Uniform|Standard|Truncated|Random)\w*|"
    r"Rng(ReadAnd)?Skip|RandomShuffle"
)
_OF_DYNAMIC_SHAPE = re.compile(
    r"Where|Unique(V2|WithCounts|WithCountsV2)?|NonMaxSuppression\w*|DynamicPartition|ListDiff|"
    r"CombinedNonMaxSuppression"
)
# They only hand on what others compute.
_PLUMBING = ("Identity", "IdentityN")
_MOVE_IT = "Wrap it in tpu.outside_compilation, or put it in front of the computation."
_NOT_COMPILED_ALONE = ("Placeholder", "PlaceholderWithDefault")


def find_uncompilable_ops(
    nodes: Sequence[PlacedNode], compiled: Sequence[PlacedNode], refused: XlaRefusals
) -> Iterator[Hazard]:
    """The ops that XLA has no form for.

    XLA itself names only the first of a computation; the others are those that its registry of
    kernels does not have.

    Args:
      nodes: what the signatures run.
      compiled: what is known to have been compiled, since a signature ran through it.
      refused: what XLA said.
    """
    ran = {(each.function, each.node.name) for each in compiled}
    named = set()
    for each in nodes:
        node = each.node
        said_so = node.name in refused.unsupported
        if not each.on_tpu or not (said_so or (_computes(node) and not _can_compile(node))):
            continue
        named.add(node.name)
        if (each.function, node.name) in ran:
            # The graph was simplified before XLA saw it.
            yield _at(
                each,
                "uncompilable",
                "warning",
                f"XLA has no form for {node.op}; here it was computed beforehand. A TPU may refuse "
                f"it. {_MOVE_IT}",
            )
        else:
            yield _at(
                each,
                "uncompilable",
                "error",
                f"XLA cannot compile {node.op}. {_MOVE_IT}",
            )
    for name, unknown in refused.unsupported.items():
        if name not in named:
            yield Hazard(
                "uncompilable",
                "error",
                f"XLA cannot compile {unknown.op}. {_MOVE_IT}",
                op=unknown.op,
                node=name,
            )


def find_large_constants(
    nodes: Iterable[PlacedNode], largest: int = LARGEST_CONSTANTS
) -> Iterator[Hazard]:
    """The computations that hold more bytes of constants than a program can carry.

    Args:
      nodes: what the signatures run.
      largest: how many bytes there may be.
    """
    found: dict[str, list[tuple[int, PlacedNode]]] = defaultdict(list)
    for each in nodes:
        if each.on_tpu and each.node.op == "Const":
            found[each.computation].append((_bytes(each.node), each))
    for computation, sizes in found.items():
        total = sum(size for size, _ in sizes)
        if total > largest:
            size, greatest = max(sizes, key=lambda item: item[0])
            yield _at(
                greatest,
                "constants",
                "error",
                f"{computation} holds {total} bytes of constants, more than the {largest} that a "
                f"compiled program can carry; the largest has {size}. Make variables of them.",
            )


def find_strings(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """The computations that strings occur in, where XLA does not refuse the op anyway."""
    found = (
        each
        for each in nodes
        if each.on_tpu
        and _has(each.node, (tf.string.as_datatype_enum,))
        and _computes(each.node)
        and _can_compile(each.node)
    )
    for same in _by_computation(found):
        yield _at(
            same[0],
            "strings",
            "warning",
            f"strings within {same[0].computation}, in {_ops(same)}: a TPU holds none, and what "
            f"XLA does not fold away, it refuses. Put them in front of the computation.",
        )


def find_random_ops(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """The ops that give something else each time, so that no two runs can be compared."""
    for each in nodes:
        if _RANDOM.fullmatch(each.node.op):
            yield _at(
                each,
                "random",
                "warning",
                f"{each.node.op} draws random numbers: the metagraphs answer differently, and a "
                f"TPU has other random numbers than a CPU for the same seed. Leave it out of "
                f"serving.",
            )


def find_dynamic_shapes(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """The ops on the TPU whose output's size depends on values."""
    for each in nodes:
        if each.on_tpu and _OF_DYNAMIC_SHAPE.fullmatch(each.node.op):
            yield _at(
                each,
                "dynamic_shape",
                "warning",
                f"the size of what {each.node.op} gives depends on values. XLA compiles that for a "
                f"CPU; for a TPU it may refuse it, or pad to the largest size. See tpuserve "
                f"compile.",
            )


def find_64_bit_types(nodes: Iterable[PlacedNode]) -> Iterator[Hazard]:
    """The computations on 64-bit numbers, which a TPU has no hardware for."""
    nodes = [each for each in nodes if each.on_tpu and _computes(each.node)]
    of_int64 = (tf.int64.as_datatype_enum, tf.uint64.as_datatype_enum)
    of_float64 = (tf.float64.as_datatype_enum, tf.complex128.as_datatype_enum)
    for same in _by_computation(each for each in nodes if _has(each.node, of_float64)):
        yield _at(
            same[0],
            "float64",
            "warning",
            f"float64 within {same[0].computation}, in {_ops(same)}: a TPU has no such numbers and "
            f"computes with pairs of float32, many times slower, with float32's range and less "
            f"precision than a CPU. Cast to float32.",
        )
    for same in _by_computation(each for each in nodes if _has(each.node, of_int64)):
        yield _at(
            same[0],
            "int64",
            "note",
            f"int64 within {same[0].computation}, in {_ops(same)}: a TPU computes with pairs of "
            f"32-bit numbers, exact and slower. Use int32 where values fit.",
        )


def _can_compile(node: Any) -> bool:
    # A function that is called by its name has its body looked at.
    is_op = op_def_registry.get(node.op) is not None
    return not is_op or node.op in _NOT_COMPILED_ALONE or xla_kernels.has_xla_kernel(node)


def _computes(node: Any) -> bool:
    return node.op not in _PLUMBING and not _OF_TPU.fullmatch(node.op)


def _has(node: Any, wanted: Sequence[int]) -> bool:
    return any(each in wanted for each in _types(node))


def _types(node: Any) -> list[int]:
    """The types of a node's outputs, by number."""
    definition = op_def_registry.get(node.op)
    if definition is None:
        return []
    defaults = {each.name: each.default_value for each in definition.attr}
    found: list[int] = []
    for each in definition.output_arg:
        # Attributes that have their default value are left out of an export.
        name = each.type_list_attr or each.type_attr
        value = node.attr[name] if name in node.attr else defaults.get(name)
        if each.type_list_attr:
            found += value.list.type if value is not None else []
        elif each.type_attr:
            found += [value.type] if value is not None else []
        else:
            found.append(each.type)
    return found


def _bytes(node: Any) -> int:
    tensor = node.attr["value"].tensor
    # A constant of one value over and over is short in the file, and whole in the program.
    count = math.prod(each.size for each in tensor.tensor_shape.dim)
    if tensor.dtype == tf.string.as_datatype_enum:
        return sum(len(each) for each in tensor.string_val)
    return int(count * tf.as_dtype(tensor.dtype).size)


def _by_computation(nodes: Iterable[PlacedNode]) -> Iterable[list[PlacedNode]]:
    found: dict[str, list[PlacedNode]] = defaultdict(list)
    for each in nodes:
        found[each.computation].append(each)
    return found.values()


def _ops(nodes: Sequence[PlacedNode]) -> str:
    types = sorted({each.node.op for each in nodes})
    count = f"{len(nodes)} op" + ("s" if len(nodes) > 1 else "")
    more = f" and {len(types) - 4} other types" if len(types) > 4 else ""
    return f"{count} ({', '.join(types[:4])}{more})"


def _at(placed: PlacedNode, kind: str, severity: Any, message: str) -> Hazard:
    return Hazard(
        kind, severity, message, op=placed.node.op, node=placed.node.name, function=placed.function
    )
