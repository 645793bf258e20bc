"""A whole graph and its functions, lowered."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tpuserve import dtypes
from tpuserve.errors import LoweringError
from tpuserve.lowering import calls, replication
from tpuserve.lowering.rule import Rule
from tpuserve.metagraph import HOST_ATTRIBUTE, functions_of

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

RULES: Mapping[str, Rule] = {**calls.RULES, **replication.RULES}

# The ops of the TPU runtime. None has a CPU kernel, so one that no rule replaces cannot run.
# Source: tensorflow/core/ops/tpu_*.cc.
_TPU_OP = re.compile(
    r"_?TPU.*|_?Xla(Send|Recv)(From|To)Host|_?XlaHostCompute.*|CrossReplicaSum|AllToAll"
    r"|CollectivePermute|(Infeed|Outfeed|Prelinearize).*|.*TPUEmbedding.*|.*DistributedTPU.*"
    r"|WorkerHeartbeat"
)

_MUST_COMPILE = "_XlaMustCompile"


def lower(graph: "GraphDef", *, compiled: bool = True) -> "GraphDef":
    """A graph of the same meaning with no TPU op in it; the one passed in is left as it is.

    Each TPU computation is compiled by XLA when it runs, for the CPU, as a whole; so an op that
    XLA cannot compile is refused there as a TPU would refuse it. A computation with a part on
    the host (outside compilation) runs op by op instead.

    Args:
      graph: a GraphDef with its function library.
      compiled: False runs every computation op by op, which starts faster and refuses less.

    Raises:
      LoweringError: an op has no form on a CPU; names the op, the node and the function.
    """
    lowered = type(graph)()
    lowered.CopyFrom(graph)
    functions = {each.signature.name: each for each in lowered.library.function}
    if compiled:
        _compile_computations(lowered, functions)
    _lower_nodes(lowered.node, where="the main graph")
    for function in functions.values():
        renamed = _lower_nodes(function.node_def, where=f"function {function.signature.name!r}")
        _rename_references(function, renamed)
    return lowered


def _compile_computations(graph: "GraphDef", functions: "Mapping[str, FunctionDef]") -> None:
    bodies = [graph.node, *(each.node_def for each in functions.values())]
    for node in (node for body in bodies for node in body if node.op == "TPUPartitionedCall"):
        name = node.attr["f"].func.name
        if name not in functions:
            raise LoweringError(
                f"TPUPartitionedCall {node.name!r} calls function {name!r}, which is not in the "
                f"graph. Export the model again."
            )
        if not _has_host_part(name, functions):
            _refuse_strings(functions[name])
            node.attr[_MUST_COMPILE].b = True
            functions[name].attr[_MUST_COMPILE].b = True


def _refuse_strings(function: "FunctionDef") -> None:
    for direction, arguments in (
        ("takes", function.signature.input_arg),
        ("returns", function.signature.output_arg),
    ):
        for argument in arguments:
            if argument.type == dtypes.STRING:
                raise LoweringError(
                    f"TPU computation {function.signature.name!r} {direction} the string "
                    f"{argument.name!r}, which a TPU cannot hold. Put the ops on strings into "
                    f"tpu.outside_compilation, or in front of the model."
                )


def _has_host_part(name: str, functions: "Mapping[str, FunctionDef]") -> bool:
    pending, seen = [name], {name}
    while pending:
        for node in functions[pending.pop()].node_def:
            if HOST_ATTRIBUTE in node.attr:
                return True
            called = {each for each in functions_of(node) if each in functions} - seen
            seen |= called
            pending.extend(called)
    return False


def _lower_nodes(nodes: "Iterable[NodeDef]", where: str) -> dict[str, Mapping[str, str]]:
    """Lowers nodes in place; returns, by node, the output arguments that got another name."""
    renamed: dict[str, Mapping[str, str]] = {}
    for node in nodes:
        rule = RULES.get(node.op)
        if rule is not None:
            rule.rewrite(node)
            renamed[node.name] = rule.renamed_outputs
        elif _TPU_OP.fullmatch(node.op):
            raise LoweringError(
                f"op {node.op} ({node.name!r} in {where}) has no form on a CPU. Take it out of "
                f"the graph, or run the graph on a TPU."
            )
        _drop_placement(node)
    return renamed


def _drop_placement(node: "NodeDef") -> None:
    for name in [name for name in node.attr if name.startswith(("_tpu", HOST_ATTRIBUTE))]:
        del node.attr[name]
    if "TPU" in node.device.upper():
        node.device = ""


def _rename_references(function: "FunctionDef", renamed: Mapping[str, Mapping[str, str]]) -> None:
    def current(reference: str) -> str:
        node, *output = reference.split(":")
        if not output or node not in renamed:
            return reference
        argument, *index = output
        return ":".join([node, renamed[node].get(argument, argument), *index])

    for node in function.node_def:
        for position, reference in enumerate(node.input):
            node.input[position] = current(reference)
    for name, reference in list(function.ret.items()):
        function.ret[name] = current(reference)
