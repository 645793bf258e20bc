"""A whole graph and its functions, lowered."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpuserve.errors import LoweringError
from tpuserve.graph.graph_walk import HOST_ATTRIBUTE, called_functions
from tpuserve.lowering.ir import default_attrs, graph_ir, op_traits
from tpuserve.lowering.ir.outlining import MUST_COMPILE, SWITCH_MERGE
from tpuserve.lowering.passes import replicated_computations
from tpuserve.lowering.rules import infeed_outfeed, partitioned_call, replicate, tpu_system
from tpuserve.lowering.rules.rewrite_rule import RewriteRule
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

RULES: Mapping[str, RewriteRule] = {**partitioned_call.RULES, **replicate.RULES, **tpu_system.RULES}

# The ops of the TPU runtime. None has a CPU kernel, so one that no rule replaces cannot run.
# Source: tensorflow/core/ops/tpu_*.cc.
_TPU_OP = re.compile(
    r"_?TPU.*|_?Xla(Send|Recv)(From|To)Host|_?XlaHostCompute.*|CrossReplicaSum|AllToAll"
    r"|CollectivePermute|(Infeed|Outfeed|Prelinearize).*|.*TPUEmbedding.*|.*DistributedTPU.*"
    r"|WorkerHeartbeat"
)


def lower(graph: "GraphDef", *, compiled: bool = True) -> "GraphDef":
    """A graph of the same meaning with no TPU op in it; the one passed in is left as it is.

    What a core computes is compiled by XLA when it runs, for the CPU; so an op that XLA cannot
    compile is refused there as a TPU would refuse it. A computation is cut where it meets the
    host or other replicas, and what lies between is compiled.

    Args:
      graph: a GraphDef with its function library.
      compiled: False runs every computation op by op, which starts faster and refuses less.

    Raises:
      LoweringError: an op has no form on a CPU; names the op, the node and the function.
    """
    lowered = type(graph)()
    lowered.CopyFrom(graph)
    default_attrs.restore_default_attrs(lowered)
    functions = {each.signature.name: each for each in lowered.library.function}
    called_before = _called(lowered, functions)
    _compile_calls(lowered, functions, compiled=compiled)
    if any(replicated_computations.MEMBER_ATTRIBUTE in node.attr for node in lowered.node):
        body = replicated_computations.lower_computations(
            graph_ir.from_node_defs(lowered.node), functions, compiled=compiled
        )
        del lowered.node[:]
        graph_ir.append_node_defs(body.nodes.values(), lowered.node)
    _lower_nodes(lowered.node, where="the main graph", in_function=False)
    called = _called(lowered, functions)
    for name in called:
        renamed = _lower_nodes(functions[name].node_def, f"function {name!r}", in_function=True)
        _rename_references(functions[name], renamed)
    _keep_functional(called, functions)
    # Of a body that was expanded, only the expanded form is called.
    unused = called_before - called
    if unused or len(functions) != len(lowered.library.function):
        del lowered.library.function[:]
        lowered.library.function.extend(
            each for name, each in functions.items() if name not in unused
        )
    return lowered


def _keep_functional(called: set[str], functions: "Mapping[str, FunctionDef]") -> None:
    """Leaves the loops and branches that XLA compiles as they are.

    What was traced outside of a computation asks for them to be taken apart into Enter, Switch and
    Merge, which XLA has no form for.
    """
    compiled = [name for name in called if MUST_COMPILE in functions[name].attr]
    reached: set[str] = set()
    while compiled:
        name = compiled.pop()
        if name in reached or name not in functions:
            continue
        reached.add(name)
        for node in functions[name].node_def:
            node.attr.pop(SWITCH_MERGE, None)
            compiled.extend({node.op, *called_functions(node)})


def _compile_calls(
    graph: "GraphDef", functions: "dict[str, FunctionDef]", *, compiled: bool
) -> None:
    """Lets XLA compile what TPUPartitionedCalls call: whole, or between its parts on the host.

    So with a computation that is called in another way, such as by a BatchFunction itself.
    """
    nodes = [graph.node, *(each.node_def for each in functions.values())]
    called = set()
    for node in [node for each in nodes for node in each if node.op == "TPUPartitionedCall"]:
        name = node.attr["f"].func.name
        if name not in functions:
            raise LoweringError(
                f"TPUPartitionedCall {node.name!r} calls function {name!r}, which is not in the "
                f"graph. Export the model again."
            )
        called.add(name)
        function = functions[name]
        if _has_host_part(function, functions):
            _expand(function, functions, compiled=compiled)
        elif compiled:
            _refuse_strings(function)
            node.attr[MUST_COMPILE].b = True
            function.attr[MUST_COMPILE].b = True
    for name, function in list(functions.items()):
        if name not in called and _has_computation(function):
            _expand(function, functions, compiled=compiled)


def _expand(
    function: "FunctionDef", functions: "dict[str, FunctionDef]", *, compiled: bool
) -> None:
    body = replicated_computations.lower_computations(
        graph_ir.from_function_def(function, functions), functions, compiled=compiled
    )
    graph_ir.replace_function_body(function, body, functions)


def _has_computation(function: "FunctionDef") -> bool:
    return any(each.op == "TPUReplicateMetadata" for each in function.node_def)


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


def _has_host_part(function: "FunctionDef", functions: "Mapping[str, FunctionDef]") -> bool:
    return any(
        HOST_ATTRIBUTE in each.attr
        for node in function.node_def
        for each in op_traits.with_called(node, functions)
    )


def _called(graph: "GraphDef", functions: "Mapping[str, FunctionDef]") -> set[str]:
    """The names of all functions that the main graph calls, at any depth."""
    found: set[str] = set()
    pending = list(graph.node)
    while pending:
        node = pending.pop()
        for name in {node.op, *called_functions(node)} & functions.keys() - found:
            found.add(name)
            pending.extend(functions[name].node_def)
    return found


def _lower_nodes(nodes: Any, where: str, *, in_function: bool) -> dict[str, Mapping[str, str]]:
    """Lowers nodes in place; returns, by node, the output arguments that got another name."""
    renamed: dict[str, Mapping[str, str]] = {
        **infeed_outfeed.lower_host_side(nodes, in_function=in_function)
    }
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
    dropped = ("_tpu", "_pivot_for_cluster", "_XlaSharding", HOST_ATTRIBUTE)
    for name in [name for name in node.attr if name.startswith(dropped)]:
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
