"""Rewrites a metagraph so that as many nodes of its signatures as possible run on the TPU."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuserve import tags as tag_sets
from tpuserve.errors import ExportError
from tpuserve.export.conversion.analysis import flattening, host_ops, partition, shapes
from tpuserve.export.conversion.analysis.flattening import FlatGraph
from tpuserve.export.conversion.analysis.shapes import SignatureShapes
from tpuserve.export.conversion.conversion_report import BEHIND, FRONT, ConvertedSignature, HostOp
from tpuserve.export.conversion.passes import outlining
from tpuserve.export.conversion.passes.resource_gathers import replace_resource_gathers
from tpuserve.export.conversion.passes.tpu_part import TpuPart, extract_part
from tpuserve.export.tpu.batching import BatchConfig
from tpuserve.graph import pruning
from tpuserve.graph.graph_walk import find_called_functions
from tpuserve.graph.references import find_tensors, rename_tensors
from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value, format_value, parse_value
from tpuserve.lowering.passes.functionalization import functionalize
from tpuserve.lowering.passes.ref_variables import replace_ref_variables
from tpuserve.saved_model.signature import INIT_SIGNATURE
from tpuserve.tensorflow_internals import op_def_registry

# Types of the ops that forward their input or do nothing. If a signature has no other ops for the
# TPU, all its nodes stay on the host.
_FORWARDING = frozenset({"Identity", "IdentityN", "NoOp", "StopGradient", "PreventGradient"})
_LEFT_OUT = "XLA leaves out checks of the TPU's values"
_MOST_NAMED = 5


@dataclass(frozen=True)
class Options:
    """The choices of the user about what runs on the TPU, and how.

    Attributes:
      aliased_functions: Names of the functions whose calls run on the TPU; empty to put as many
        nodes as possible on the TPU.
      whole: Whether to raise an ExportError for a signature with a node on the host.
      batch_config: How to batch requests before the TPU; None for no batching.
      rewrite_body: Takes the graph of a TPU computation and the function library; returns the graph
        to use instead, for example in bfloat16.
    """

    aliased_functions: frozenset[str] = frozenset()
    whole: bool = False
    batch_config: BatchConfig | None = None
    rewrite_body: Callable[[GraphIR, dict[str, Any]], GraphIR] = lambda body, library: body


@dataclass
class _RewriteState:
    """The state of the rewriting of one metagraph."""

    flat: FlatGraph
    ordered_graph: GraphIR
    library: dict[str, Any]
    function_library: Any
    nodes: dict[str, Node]
    options: Options
    refused_nodes: Mapping[str, str] = field(default_factory=dict)


def rewrite_meta_graph(
    source: Any, signatures: Sequence[str], options: Options, refused: Mapping[str, str]
) -> tuple[Any, tuple[ConvertedSignature, ...]]:
    """Build a TPU metagraph from a CPU metagraph.

    Args:
      refused: Name of a node that XLA could not compile in an earlier attempt → why. These nodes
        stay on the host.

    Raises:
      ExportError: No node can run on the TPU, or `options` puts a node on the TPU that only the
        host can run.
    """
    meta_graph = type(source)()
    meta_graph.CopyFrom(source)
    meta_graph.ClearField("object_graph_def")
    meta_graph.meta_info_def.ClearField("tags")
    meta_graph.meta_info_def.tags.extend(sorted(tag_sets.SERVE_TPU))
    pruning.prune_metagraph(meta_graph)
    graph = meta_graph.graph_def
    op_defs.restore_default_attrs(graph)
    replace_ref_variables(graph)
    library = {function.signature.name: function for function in graph.library.function}
    main = graph_ir.from_node_defs(graph.node)
    fetches = [
        parse_value(tensor)
        for name in signatures
        for info in meta_graph.signature_def[name].outputs.values()
        for tensor in find_tensors(info)
    ]
    flat = _make_compilable(
        flattening.flatten(main, fetches, library, options.aliased_functions),
        library,
        graph.library,
    )
    ordered = flattening.order_effects(flat.graph, library)
    rewriting = _RewriteState(
        flat, ordered, library, graph.library, dict(flat.graph.nodes), options, refused
    )
    converted = tuple(
        _convert_signature(rewriting, name, meta_graph.signature_def[name]) for name in signatures
    )
    if not any(signature.functions for signature in converted):
        raise ExportError(_describe_nothing(converted))
    del graph.node[:]
    graph_ir.append_node_defs(rewriting.nodes.values(), graph.node)
    pruning.prune_metagraph(meta_graph)
    _replace_library(graph, library)
    _list_ops(meta_graph)
    return meta_graph, converted


def _make_compilable(flat: FlatGraph, library: dict[str, Any], function_library: Any) -> FlatGraph:
    """Replace TensorFlow 1's control flow, and ResourceGatherNd, by ops that XLA can compile."""
    before = set(library)
    functional = functionalize(flat.graph, library)
    function_library.function.extend(library[name] for name in library if name not in before)
    replaced = {**flat.replacements, **functional.replaced}
    return dataclasses.replace(
        flat, graph=replace_resource_gathers(functional.graph), replacements=replaced
    )


def _convert_signature(rewriting: _RewriteState, name: str, signature: Any) -> ConvertedSignature:
    """Move as many nodes of a signature to the TPU as possible."""
    graph, flat = rewriting.ordered_graph, rewriting.flat
    feeds = {
        parse_value(tensor): info
        for info in signature.inputs.values()
        for tensor in find_tensors(info)
    }
    fetches = [
        graph_ir.resolve(parse_value(tensor), flat.replacements)
        for info in signature.outputs.values()
        for tensor in find_tensors(info)
    ]
    producers = {value.producer for value in feeds}
    needed = graph_ir.find_needed(graph.nodes, [fetch.producer for fetch in fetches], producers)
    nodes = {name: graph.nodes[name] for name in graph.nodes if name in needed}
    free = host_ops.find_free(graph, list(nodes))
    names = needed - free
    inferred = shapes.infer_all(nodes, feeds, rewriting.function_library)
    reasons = host_ops.find_host_ops(
        graph, names, feeds, rewriting.library, inferred.first, rewriting.refused_nodes
    )
    groups = _choose_groups(rewriting, name, names, reasons)
    on_tpu = set[str]().union(*groups)
    parts = [
        extract_part(graph, group, names, free, feeds, fetches, rewriting.library, inferred)
        for group in groups
    ]
    behind = _find_behind(graph, names, on_tpu)
    observers = _find_observers(rewriting, fetches, producers, needed, on_tpu | behind)
    host = [*_list_host_ops(graph, names - on_tpu, reasons, behind), *observers.values()]
    host += [
        HostOp(graph.nodes[name].op, name, "", _LEFT_OUT)
        for name in nodes
        if name in on_tpu and graph.nodes[name].op.startswith("CheckNumerics")
    ]
    if rewriting.options.whole and names - on_tpu:
        raise ExportError(_describe_not_whole(name, host))
    on_host = [name for name, op in observers.items() if op.place]
    functions = _insert_parts(
        rewriting, name, parts, on_tpu, names - on_tpu, inferred, signature, on_host
    )
    return ConvertedSignature(name, len(on_tpu), len(names - on_tpu), tuple(host), tuple(functions))


def _choose_groups(
    rewriting: _RewriteState, signature: str, names: set[str], reasons: Mapping[str, str]
) -> list[set[str]]:
    """Choose the nodes of a signature that run on the TPU."""
    graph = rewriting.ordered_graph
    if not rewriting.options.aliased_functions:
        chosen = partition.find_tpu_nodes(graph, names, reasons.keys(), rewriting.library)
        is_empty = all(graph.nodes[name].op in _FORWARDING for name in chosen)
        return [] if is_empty else [chosen]
    groups: dict[str, set[str]] = {}
    for name in names:
        if name in rewriting.flat.origins:
            groups.setdefault(rewriting.flat.origins[name], set()).add(name)
    for call, group in groups.items():
        inner = [name for name in graph.nodes if name in group and name in reasons]
        if inner:
            ops = [
                HostOp(graph.nodes[inner_name].op, inner_name, "", reasons[inner_name])
                for inner_name in inner
            ]
            raise ExportError(
                f"call {call!r} in signature {signature!r} cannot run on a TPU: "
                f"{_name_ops(ops)}. Give the alias to a function without these ops."
            )
    return [groups[name] for name in sorted(groups)]


def _find_behind(graph: GraphIR, names: Collection[str], on_tpu: Collection[str]) -> set[str]:
    behind: set[str] = set()
    for name, node in graph.nodes.items():
        if name in names and name not in on_tpu:
            before = graph_ir.predecessors(node)
            if any(predecessor in on_tpu or predecessor in behind for predecessor in before):
                behind.add(name)
    return behind


def _find_observers(
    rewriting: _RewriteState,
    fetches: Iterable[Value],
    stop: Collection[str],
    needed: Collection[str],
    after_host: Collection[str],
) -> dict[str, HostOp]:
    """Find the nodes that only check or print values, such as assertions."""
    flat, ordered = rewriting.flat.graph.nodes, rewriting.ordered_graph.nodes
    before = graph_ir.find_needed(flat, [value.producer for value in fetches], stop)
    observers = {}
    for name in sorted(before - set(needed)):
        op = flattening.find_observer(flat[name], rewriting.library)
        if op:
            inputs = [value.producer for value in ordered[name].inputs]
            is_front = graph_ir.find_needed(ordered, inputs, stop).isdisjoint(after_host)
            reason = "checks or prints values, before the TPU runs" if is_front else _LEFT_OUT
            observers[name] = HostOp(op, name, FRONT if is_front else "", reason)
    return observers


def _list_host_ops(
    graph: GraphIR, names: Collection[str], reasons: Mapping[str, str], behind: Collection[str]
) -> list[HostOp]:
    return [
        HostOp(graph.nodes[name].op, name, BEHIND if name in behind else FRONT, reasons[name])
        for name in graph.nodes
        if name in names and name in reasons and graph.nodes[name].op not in _FORWARDING
    ]


def _insert_parts(
    rewriting: _RewriteState,
    signature_name: str,
    parts: Sequence[TpuPart],
    on_tpu: set[str],
    host: Collection[str],
    inferred: SignatureShapes,
    signature: Any,
    controls: Sequence[str],
) -> list[str]:
    """Add the TPU computations of a signature and their calls to the rewritten graph."""
    if not parts:
        controls, host = (), ()
    replaced: dict[Value, Value] = {}
    # Name of a node → name of the node that replaces it as a control input. A node of a TPU
    # computation is replaced by the call of the computation.
    awaited: dict[str, str] = {}
    calls: list[Node] = []
    functions = []
    for part in parts:
        before = [*controls, *part.controls]
        function, nodes = _make_call(rewriting, signature_name, part, inferred, before)
        for node in nodes:
            rewriting.nodes[node.name] = node
        calls += nodes
        functions.append(function)
        replaced |= {
            value: Value(nodes[-1].name, index) for index, value in enumerate(part.results)
        }
        awaited |= dict.fromkeys(part.body.nodes.keys() & on_tpu, nodes[-1].name)
    for name in controls:
        # Nodes that check values before the TPU runs use no result of the TPU: add them unchanged.
        rewriting.nodes[name] = rewriting.ordered_graph.nodes[name]
    for name, node in rewriting.ordered_graph.nodes.items():
        if name in host:
            inputs = [replaced.get(value, value) for value in node.inputs]
            waits = [awaited.get(control, control) for control in node.controls]
            if inputs != node.inputs or waits != node.controls:
                copy = graph_ir.unused_name(f"{name}/behind_tpu", rewriting.nodes)
                rewriting.nodes[copy] = Node(copy, node.definition, inputs, waits)
                awaited[name] = copy
                replaced |= {
                    Value(name, index): Value(copy, index)
                    for index in range(_count_outputs(node, rewriting.library))
                }
            else:
                rewriting.nodes[name] = node
    for node in calls:
        node.inputs = [replaced.get(value, value) for value in node.inputs]
        node.controls = [awaited.get(control, control) for control in node.controls]

    def rename(tensor: str) -> str:
        value = graph_ir.resolve(parse_value(tensor), rewriting.flat.replacements)
        return format_value(replaced.get(value, value))

    for info in signature.outputs.values():
        rename_tensors(info, rename)
    return functions


def _make_call(
    rewriting: _RewriteState,
    signature: str,
    part: TpuPart,
    inferred: SignatureShapes,
    controls: Sequence[str],
) -> tuple[str, list[Node]]:
    """Add the function of a TPU computation to the library, and build the nodes that call it."""
    library, options = rewriting.library, rewriting.options
    stem = re.sub(r"[^A-Za-z0-9_]", "_", signature)
    name = graph_ir.unused_name(f"tpu_{stem}", library)
    body = options.rewrite_body(part.body, library)
    function = library[name] = outlining.make_tpu_function(body, name, library)
    outlining.set_argument_shapes(function, map(inferred.unbound.shape, part.arguments))
    call_name = graph_ir.unused_name(f"tpu/{stem}", rewriting.nodes)
    if options.batch_config is None:
        return name, outlining.make_tpu_call(function, part.arguments, call_name, controls)
    _check_rows(signature, part, inferred)
    batch_name = graph_ir.unused_name(f"batch_{stem}", library)
    batched = outlining.make_batch_function(function, batch_name, library)
    outlining.set_argument_shapes(batched, map(inferred.unbound.shape, part.arguments))
    library[batch_name] = batched
    call = outlining.make_batch_call(
        batched, part.arguments, part.num_handles, call_name, options.batch_config, controls
    )
    return name, [call]


def _check_rows(signature: str, part: TpuPart, inferred: SignatureShapes) -> None:
    """Check that all inputs and outputs of a TPU computation can be batched."""
    inputs = part.arguments[: len(part.arguments) - part.num_handles]
    for kind, values in (("takes", inputs), ("returns", part.results)):
        for value in values:
            if not inferred.has_rows(value):
                shape = inferred.unbound.shape(value)
                raise ExportError(
                    f"the TPU part of signature {signature!r} {kind} {format_value(value)} of "
                    f"shape {'?' if shape is None else list(shape)}, whose first dimension need "
                    f"not be the number of rows, so that requests cannot be batched. Leave "
                    f"allowed_batch_sizes out."
                )
    if not inputs:
        raise ExportError(
            f"the TPU part of signature {signature!r} has no input, so there is nothing to batch. "
            f"Leave allowed_batch_sizes out."
        )


def _count_outputs(node: Node, library: Mapping[str, Any]) -> int:
    return len(op_defs.node_outputs(node.definition, library))


def _name_ops(ops: Sequence[HostOp]) -> str:
    named = "; ".join(f"{op.op} ({op.node!r}): {op.reason}" for op in ops[:_MOST_NAMED])
    more = len(ops) - _MOST_NAMED
    return f"{named}; and {more} others" if more > 0 else named


def _describe_not_whole(name: str, ops: Sequence[HostOp]) -> str:
    return (
        f"signature {name!r} cannot run on a TPU as a whole: {_name_ops(ops)}. Leave these ops on "
        f"the host: convert without whole."
    )


def _describe_nothing(converted: Sequence[ConvertedSignature]) -> str:
    ops = [op for signature in converted for op in signature.host_ops]
    names = ", ".join(repr(signature.name) for signature in converted)
    why = f": {_name_ops(ops)}" if ops else ""
    return (
        f"nothing of signature {names} would run on a TPU{why}. Convert a signature that computes "
        f"with numbers of known shapes, or serve the model as it is."
    )


def _replace_library(graph: Any, library: Mapping[str, Any]) -> None:
    """Replace the function library of a GraphDef, in place."""
    reachable = find_called_functions(graph.node, library)
    functions = [library[name] for name in library if name in reachable]
    copies = [type(function).FromString(function.SerializeToString()) for function in functions]
    del graph.library.function[:]
    graph.library.function.extend(copies)
    gradients = [
        gradient for gradient in graph.library.gradient if gradient.function_name in reachable
    ]
    del graph.library.gradient[:]
    graph.library.gradient.extend(gradients)
    del graph.library.registered_gradients[:]


def _list_ops(meta_graph: Any) -> None:
    """Add the ops that a metagraph uses to its stripped_op_list, as TensorFlow's savers do."""
    graph = meta_graph.graph_def
    used = {node.op for node in graph.node}
    used |= {node.op for function in graph.library.function for node in function.node_def}
    listed = {op.name: op for op in meta_graph.meta_info_def.stripped_op_list.op}
    for name in used - listed.keys():
        definition = op_def_registry.get(name)
        if definition is not None:
            listed[name] = definition
    copies = [
        type(listed[name]).FromString(listed[name].SerializeToString()) for name in sorted(listed)
    ]
    del meta_graph.meta_info_def.stripped_op_list.op[:]
    meta_graph.meta_info_def.stripped_op_list.op.extend(copies)


def drop_init_signature(meta_graph: Any) -> None:
    """Remove the signature of the init op from a metagraph, if a collection names the op too.

    Loaders find the init op in the collection. tf.saved_model.load fails on the signature if there
    are two metagraphs and the op reads an asset.
    """
    if "saved_model_main_op" in meta_graph.collection_def:
        meta_graph.signature_def.pop(INIT_SIGNATURE, None)
