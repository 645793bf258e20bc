"""Lowers a whole GraphDef and its functions: replaces all TPU ops by ops with CPU kernels."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tpuserve.errors import LoweringError
from tpuserve.graph.graph_walk import (
    CLUSTER_ATTRIBUTE,
    HOST_ATTRIBUTE,
    REPLICATE_METADATA,
    TPU_CALL,
    find_called_functions,
    possible_calls,
)
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering import tpu_kernels
from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.function_renaming import rename_outputs
from tpuserve.lowering.ir.outlining import MUST_COMPILE, SWITCH_MERGE
from tpuserve.lowering.passes import replicated_computations
from tpuserve.lowering.passes.automatic_host_ops import mark_host_ops
from tpuserve.lowering.passes.functionalization import functionalize_function
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.node_rewriting import RewriteScope
from tpuserve.lowering.rules.op_table import op_spec
from tpuserve.saved_model import dtypes
from tpuserve.saved_model.op_packages import unknown_ops_error

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

# Prefixes of the names of attributes that assign a node to a TPU computation or core. The lowering
# removes these attributes, because its result runs on a CPU.
_PLACEMENT_ATTRIBUTES = ("_tpu", "_pivot_for_cluster", "_XlaSharding", HOST_ATTRIBUTE)


def lower(graph: "GraphDef", *, compiled: bool = True) -> "GraphDef":
    """Return a copy of a graph that computes the same results without TPU ops.

    XLA compiles each TPU computation for the CPU when it first runs.

    Args:
      compiled: whether XLA compiles TPU computations. If False, their ops run one by one, which
        starts faster and works for more ops.

    Raises:
      LoweringError: an op cannot be lowered to a CPU. The message names the op, the node and the
        function.
      UnsupportedModel: TensorFlow does not know an op.
    """
    lowered = type(graph)()
    lowered.CopyFrom(graph)
    op_defs.restore_default_attrs(lowered)
    functions = {function.signature.name: function for function in lowered.library.function}
    _check_known((lowered.node, *(body.node_def for body in functions.values())), functions)
    reachable_before = find_called_functions(lowered.node, functions)
    _functionalize_computations(lowered, functions)
    mark_host_ops(lowered.node, functions)
    _lower_computation_functions(lowered, functions, compiled=compiled)
    if any(CLUSTER_ATTRIBUTE in node.attr for node in lowered.node):
        main_graph = replicated_computations.lower_computations(
            graph_ir.from_node_defs(lowered.node), functions, compiled=compiled
        )
        del lowered.node[:]
        graph_ir.append_node_defs(main_graph.nodes.values(), lowered.node)
    _rewrite_nodes(lowered.node, "the main graph", in_function=False)
    reachable = find_called_functions(lowered.node, functions)
    for name in reachable:
        renamed = _rewrite_nodes(functions[name].node_def, f"function {name!r}", in_function=True)
        rename_outputs(functions[name], renamed)
    _prepare_compiled_functions(reachable, functions)
    # Remove functions that the original graph calls but the new graph does not. An example is the
    # body of a loop: a new function, which does the work of all replicas, has replaced it.
    unused = reachable_before - reachable
    if unused or len(functions) != len(lowered.library.function):
        del lowered.library.function[:]
        lowered.library.function.extend(
            function for name, function in functions.items() if name not in unused
        )
    return lowered


def _check_known(
    graphs: "Iterable[Iterable[NodeDef]]", functions: "Mapping[str, FunctionDef]"
) -> None:
    unknown = Counter(
        node.op
        for nodes in graphs
        for node in nodes
        if op_defs.op_definition(node, functions) is None
    )
    if unknown:
        raise unknown_ops_error("the graph", unknown)


def _prepare_compiled_functions(reachable: set[str], functions: "dict[str, FunctionDef]") -> None:
    """Change what would keep XLA from compiling a function for a CPU: attributes, and ops."""
    roots = {name for name in reachable if MUST_COMPILE in functions[name].attr}
    compiled = roots.union(
        *(find_called_functions(functions[name].node_def, functions) for name in roots)
    )
    for name in compiled:
        for node in functions[name].node_def:
            node.attr.pop(SWITCH_MERGE, None)
        tpu_kernels.replace_in_function(functions[name], functions)


def _functionalize_computations(graph: "GraphDef", functions: "dict[str, FunctionDef]") -> None:
    """Replace TensorFlow 1's loops and branches in TPU computations by While and If ops."""
    node_lists = [graph.node, *(function.node_def for function in functions.values())]
    computations = [
        node.attr["f"].func.name for nodes in node_lists for node in nodes if node.op == TPU_CALL
    ]

    def functionalize(name: str) -> set[str] | None:
        if name not in functions:
            return None
        functionalize_function(name, functions)
        return possible_calls(functions[name].node_def)

    find_reachable(computations, functionalize)


def _lower_computation_functions(
    graph: "GraphDef", functions: "dict[str, FunctionDef]", *, compiled: bool
) -> None:
    """Prepare the functions that hold TPU computations to run on a CPU, in place."""
    called = set()
    node_lists = [graph.node, *(function.node_def for function in functions.values())]
    for node in [node for nodes in node_lists for node in nodes if node.op == TPU_CALL]:
        name = node.attr["f"].func.name
        if name not in functions:
            raise LoweringError(
                f"{TPU_CALL} {node.name!r} calls function {name!r}, which is not in the graph. "
                f"Export the model again."
            )
        called.add(name)
        function = functions[name]
        if _has_host_part(function, functions):
            _unroll_function(function, functions, compiled=compiled)
        elif compiled:
            _check_no_strings(function)
            node.attr[MUST_COMPILE].b = True
            function.attr[MUST_COMPILE].b = True
    for name, function in list(functions.items()):
        if name not in called and _has_computation(function):
            _unroll_function(function, functions, compiled=compiled)


def _unroll_function(
    function: "FunctionDef", functions: "dict[str, FunctionDef]", *, compiled: bool
) -> None:
    body = replicated_computations.lower_computations(
        graph_ir.from_function_def(function, functions), functions, compiled=compiled
    )
    graph_ir.replace_function_body(function, body, functions)


def _has_computation(function: "FunctionDef") -> bool:
    return any(node.op == REPLICATE_METADATA for node in function.node_def)


def _has_host_part(function: "FunctionDef", functions: "Mapping[str, FunctionDef]") -> bool:
    return any(
        op_traits.is_on_host(inner)
        for node in function.node_def
        for inner in op_defs.walk_calls([node], functions)
    )


def _check_no_strings(function: "FunctionDef") -> None:
    """Raise a LoweringError if the function of a TPU computation takes or returns strings."""
    for verb, arguments in (
        ("takes", function.signature.input_arg),
        ("returns", function.signature.output_arg),
    ):
        for argument in arguments:
            if argument.type == dtypes.STRING:
                raise LoweringError(
                    f"TPU computation {function.signature.name!r} {verb} the string "
                    f"{argument.name!r}, which a TPU cannot hold. Put the ops on strings into "
                    f"tpu.outside_compilation, or in front of the model."
                )


def _rewrite_nodes(nodes: Any, where: str, *, in_function: bool) -> dict[str, Mapping[str, str]]:
    """Replace TPU ops by CPU ops, in place, with the functions `OpSpec.rewrite` of the op table."""
    renamed: dict[str, Mapping[str, str]] = {}
    scope = RewriteScope(nodes, in_function)
    # Iterate over a copy of the list, because `spec.rewrite` may append nodes to it.
    for node in list(nodes):
        spec = op_spec(node.op)
        if spec.rewrite is not None:
            spec.rewrite(node, scope)
            renamed[node.name] = spec.renamed_outputs
        elif spec.is_tpu_op:
            raise LoweringError(
                f"op {node.op} ({node.name!r} in {where}) cannot be lowered to a CPU. Remove it "
                f"from the graph, or run the graph on a TPU."
            )
        _remove_placement(node)
    return renamed


def _remove_placement(node: "NodeDef") -> None:
    for name in [name for name in node.attr if name.startswith(_PLACEMENT_ATTRIBUTES)]:
        del node.attr[name]
    if "TPU" in node.device.upper():
        node.device = ""
