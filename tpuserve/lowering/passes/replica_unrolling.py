"""Replica unrolling: builds, from the graph of one replica, a CPU graph for all replicas.

Each of N replicas would run the original graph on a TPU. The new graph does the work of all
replicas, and has no TPU ops.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from tpuserve.errors import LoweringError
from tpuserve.graph import batch_rows
from tpuserve.lowering.ir import graph_ir, op_defs, outlining
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes import (
    clustering,
    cross_replica_control_flow,
    replica_invariance,
)
from tpuserve.lowering.passes.canonicalize import canonicalize_graph
from tpuserve.lowering.passes.clustering import Cluster, ClusterClosure, ClusterKind
from tpuserve.lowering.passes.replica_invariance import invariant_values, must_split
from tpuserve.lowering.passes.unrolled_graph import ReplicaContext, UnrolledGraph
from tpuserve.lowering.passes.variable_ordering import VariableOrdering
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_spec import ReplicatedLowering, ReplicatedOp
from tpuserve.lowering.rules.op_table import op_spec
from tpuserve.saved_model import dtypes


def unroll_replicas(
    graph: GraphIR,
    values: Mapping[Value, list[Value]],
    context: ReplicaContext,
    prefix: str,
    taken: Iterable[str] = (),
) -> UnrolledGraph:
    """Build one graph that does the work of all replicas.

    Args:
      values: value from outside of the original graph → the values that replace it in the new
        graph, one for each replica.
      taken: names that the new nodes must not have.
    """
    return _ReplicaUnroller(graph, values, context, prefix, taken).run()


class _ReplicaUnroller:
    def __init__(
        self,
        graph: GraphIR,
        values: Mapping[Value, list[Value]],
        context: ReplicaContext,
        prefix: str,
        taken: Iterable[str],
    ) -> None:
        self._original = graph
        self._graph = canonicalize_graph(graph, context.library)
        self._types = graph_ir.value_types(self._graph, context.library)
        self._context = context
        self._library = context.library
        self._num_replicas = context.num_replicas
        self._prefix = prefix
        self._out = UnrolledGraph(values=dict(values), taken={*taken, *graph.arguments})
        known = {
            value for value, copies in values.items() if all(copy == copies[0] for copy in copies)
        }
        self._invariant = invariant_values(self._graph, known, self._num_replicas, self._library)
        self._split_nodes = {
            node.name
            for node in self._graph.nodes.values()
            if must_split(node, self._graph, self._invariant, self._num_replicas, self._library)
        }

    def run(self) -> UnrolledGraph:
        clusters = clustering.partition_into_clusters(
            self._graph, self._invariant, self._library, self._split_nodes
        )
        closures = [self._close(cluster) for cluster in clusters]
        ordering = VariableOrdering(self._graph, self._library)
        for cluster, closure in zip(clusters, closures, strict=True):
            before = ordering.nodes_before(cluster, closure)
            if cluster.kind is ClusterKind.SINGLE_OP:
                emitted = self._emit_op(cluster.nodes[0], before)
            else:
                live_out = clustering.live_out_values(cluster, closures, self._graph)
                emitted = self._emit_cluster(cluster, closure, live_out, before)
            ordering.record(cluster, closure, emitted)
            if any(op_traits.must_run(node.definition, self._library) for node in cluster.nodes):
                self._out.effects += emitted
        self._bind_results()
        return self._out

    def _close(self, cluster: Cluster) -> ClusterClosure:
        if cluster.kind is ClusterKind.SINGLE_OP:
            return ClusterClosure({}, list(cluster.nodes[0].inputs))
        return clustering.close_over_shapes(
            cluster, self._graph, self._types, self._invariant, self._library
        )

    def _bind_results(self) -> None:
        """Record which values in the new graph replace the results of the original graph."""
        for original, result in zip(self._original.results, self._graph.results, strict=True):
            node = self._graph.nodes.get(result.producer)
            if node is not None and op_traits.is_constant(node.definition):
                # The result is a constant. Add a copy of it with its control inputs, so that nodes
                # which use the result still run after these control inputs.
                controls = self._map_controls(node.controls)
                copy = Value(self._out.add_node(node.name, node.definition, [], controls))
                self._out.values[original] = [copy] * self._num_replicas
            else:
                self._out.values[original] = self._replica_values(result)
        for original_name, name in zip(
            self._original.control_outputs, self._graph.control_outputs, strict=True
        ):
            node = self._graph.nodes.get(name)
            if node is not None and op_traits.is_constant(node.definition):
                self._out.awaited[original_name] = self._map_controls(node.controls)
            else:
                self._out.awaited[original_name] = self._out.awaited.get(name, [])

    # The methods below add the nodes that replace a single op.

    def _emit_op(self, node: Node, before: list[str]) -> list[str]:
        """Add the nodes that do the work of one op on all replicas; return their names."""
        controls = [*before, *self._map_controls(node.controls)]
        num_nodes_before = len(self._out.nodes)
        lower_replicated = op_spec(node.op).lower_replicated
        is_joint = node.name in self._split_nodes or (
            op_traits.is_lowered_jointly(node.definition, self._library)
            and not op_traits.is_on_host(node.definition)
            and not self._can_diverge(node)
        )
        if lower_replicated is not None:
            self._emit_by_rule(node, lower_replicated, controls)
        elif is_joint:
            self._emit_joint(node, controls)
        else:
            self._emit_per_replica(node, controls)
        emitted = [new_node.name for new_node in self._out.nodes[num_nodes_before:]]
        self._out.awaited[node.name] = emitted or controls
        return emitted

    def _can_diverge(self, node: Node) -> bool:
        """Return whether each replica may run a loop or branch with ops of the host by itself.

        It must if replicas disagree on the condition, and can if only the host takes part in it.
        """
        return (
            (op_traits.is_loop(node.definition) or op_traits.is_branch(node.definition))
            and not replica_invariance.has_invariant_predicate(
                node, self._invariant, self._num_replicas, self._library
            )
            and not op_traits.writes_variable(node.definition, self._library)
            and not any(
                op_spec(inner.op).is_lowered_jointly
                for inner in op_defs.walk_calls([node.definition], self._library)
            )
        )

    def _emit_by_rule(
        self, node: Node, lower_replicated: ReplicatedLowering, controls: list[str]
    ) -> None:
        """Add the nodes that replace an op, by calling the rule for its op type."""
        results = lower_replicated(
            ReplicatedOp(
                node,
                self._graph.nodes,
                lambda index: self._replica_values(node.inputs[index]),
                self._context.cores,
                self._out.node_maker(node.name, controls),
            )
        )
        for index, copies in enumerate(results):
            self._out.values[Value(node.name, index)] = copies

    def _emit_per_replica(self, node: Node, controls: list[str]) -> None:
        """Add a copy of an op for each replica, or one copy if all replicas get equal outputs."""
        num_outputs = len(op_defs.node_outputs(node.definition, self._library))
        is_single = all(value in self._invariant for value in node.inputs) and (
            not op_traits.is_random(node.definition, self._library)
        )
        names = []
        definition = type(node.definition)()
        definition.CopyFrom(node.definition)
        # Keep a branch whole: TensorFlow lets nothing wait for the effects in a divided one.
        definition.attr.pop(outlining.SWITCH_MERGE, None)
        for replica in range(1 if is_single else self._num_replicas):
            name = node.name if is_single else f"{node.name}/replica_{replica}"
            inputs = [self._replica_values(value)[replica] for value in node.inputs]
            names.append(self._out.add_node(name, definition, inputs, controls))
        if is_single:
            names *= self._num_replicas
        for index in range(num_outputs):
            self._out.values[Value(node.name, index)] = [Value(name, index) for name in names]

    def _emit_joint(self, node: Node, controls: list[str]) -> None:
        """Add to the new graph a single loop or branch that does the work of all replicas."""
        definition, inputs, is_invariant = cross_replica_control_flow.fuse_replicas(
            node,
            [self._replica_values(value) for value in node.inputs],
            self._invariant,
            self._library,
            self._unroll_function,
        )
        name = self._out.add_node(node.name, definition, inputs, controls)
        next_output = itertools.count()
        for index, is_single in enumerate(is_invariant):
            copies = [
                Value(name, next(next_output))
                for _ in range(1 if is_single else self._num_replicas)
            ]
            self._out.values[Value(node.name, index)] = (
                copies * self._num_replicas if is_single else copies
            )

    def _unroll_function(
        self, name: str, invariant_arguments: Sequence[bool], invariant_results: Sequence[bool]
    ) -> str:
        """Build, from a function of one replica, a function that does the work of all replicas."""
        body = graph_ir.from_function_def(self._library[name], self._library)
        arguments: dict[str, int] = {}
        values: dict[Value, list[Value]] = {}
        for (argument, dtype), is_single in zip(
            body.arguments.items(), invariant_arguments, strict=True
        ):
            names = (
                [argument]
                if is_single
                else [f"{argument}_replica_{replica}" for replica in range(self._num_replicas)]
            )
            arguments.update(dict.fromkeys(names, dtype))
            copies = [Value(copy) for copy in names]
            values[Value(argument)] = copies * self._num_replicas if is_single else copies
        unrolled = unroll_replicas(body, values, self._context, name, arguments)
        results = []
        for result, is_single in zip(body.results, invariant_results, strict=True):
            copies = unrolled.values[result]
            results += copies[:1] if is_single else copies
        control_outputs = [
            awaited for name in body.control_outputs for awaited in unrolled.awaited.get(name, ())
        ]
        unrolled_body = GraphIR(
            {node.name: node for node in unrolled.nodes},
            arguments,
            results=results,
            # Who waits for a branch or loop waits for its effects, even if no result needs them.
            control_outputs=list(dict.fromkeys([*control_outputs, *unrolled.effects])),
        )
        return self._context.add_function(unrolled_body, f"{name}_replicated")

    # The methods below turn a cluster of nodes into a function, and add the calls of it.

    def _emit_cluster(
        self, cluster: Cluster, closure: ClusterClosure, live_out: list[Value], before: list[str]
    ) -> list[str]:
        """Turn a cluster of nodes into a function, and add the calls of it."""
        members = {node.name for node in cluster.nodes}
        controls = [
            *before,
            *self._map_controls(
                name for node in cluster.nodes for name in node.controls if name not in members
            ),
        ]
        body = self._cluster_body(cluster, closure, live_out)
        if body.results or body.control_outputs:
            self._check_updates(cluster, live_out)
            calls = self._emit_calls(cluster, closure, body, controls)
        else:
            calls = []
        for index, value in enumerate(live_out):
            copies = [Value(name, index) for name in calls]
            self._out.values[value] = copies * (self._num_replicas // len(calls))
        for node in cluster.nodes:
            self._out.awaited[node.name] = calls or controls
        return calls

    def _cluster_body(
        self, cluster: Cluster, closure: ClusterClosure, live_out: list[Value]
    ) -> GraphIR:
        arguments = {value: f"input_{index}" for index, value in enumerate(closure.inputs)}
        nodes = {
            node.name: Node(
                node.name,
                node.definition,
                [Value(arguments[value]) if value in arguments else value for value in node.inputs],
                [name for name in node.controls if name in closure.nodes],
            )
            for node in closure.nodes.values()
        }
        return GraphIR(
            nodes,
            {name: self._types[value] for value, name in arguments.items()},
            results=live_out,
            control_outputs=[
                node.name
                for node in cluster.nodes
                if op_defs.is_stateful(node.definition, self._library)
            ],
        )

    def _check_updates(self, cluster: Cluster, live_out: list[Value]) -> None:
        """Check the nodes that update variables: their results must be the same on all replicas."""
        if cluster.kind is not ClusterKind.VARIABLE_UPDATE or self._num_replicas == 1:
            return
        for value in live_out:
            if value not in self._invariant:
                node = self._graph.nodes[value.producer]
                raise LoweringError(
                    f"{node.op} {node.name!r} updates a variable and gives a result that differs "
                    f"between replicas, which cannot be lowered to a CPU. Make the update an op "
                    f"of its own, outside of the function or branch."
                )

    def _emit_calls(
        self, cluster: Cluster, closure: ClusterClosure, body: GraphIR, controls: list[str]
    ) -> list[str]:
        """Add the calls of a cluster's function: one per replica, or one for all replicas."""
        must_compile = self._context.compiled and self._is_worth_compiling(closure, body)
        # XLA ignores the seeds of random ops. Without XLA, random ops with the same seeds would
        # draw the same numbers on all replicas, so each replica gets a function with other seeds.
        needs_reseeding = not must_compile and any(
            map(outlining.has_seed_attributes, body.nodes.values())
        )
        label = f"{self._prefix}/{cluster.kind.name.lower()}_{cluster.level}"
        runs_once = cluster.kind in (ClusterKind.INVARIANT, ClusterKind.VARIABLE_UPDATE)
        num_calls = 1 if runs_once else self._num_replicas
        function, calls = "", []
        for replica in range(num_calls):
            if not function or needs_reseeding:
                function = self._context.add_function(
                    outlining.reseed(body, replica) if needs_reseeding else body,
                    label.replace("/", "_"),
                    must_compile=must_compile,
                )
            call = outlining.make_call(function, self._library[function], must_compile=must_compile)
            name = f"{label}/replica_{replica}" if num_calls > 1 else label
            inputs = [self._replica_values(value)[replica] for value in closure.inputs]
            calls.append(self._out.add_node(name, call, inputs, controls))
        return calls

    def _is_worth_compiling(self, closure: ClusterClosure, body: GraphIR) -> bool:
        """Return whether a cluster computes anything, and XLA can compile the cluster."""
        is_trivial = all(op_spec(node.op).is_trivial for node in closure.nodes.values())
        # XLA cannot compile a function that takes or returns a TensorList. A loop returns
        # TensorLists for the computation of its gradients.
        has_tensor_lists = any(
            self._types[value] == dtypes.VARIANT for value in (*closure.inputs, *body.results)
        )
        # A function that XLA compiles cannot change the shape of a variable.
        resizes_variable = any(
            batch_rows.ATTRIBUTE in node.definition.attr for node in closure.nodes.values()
        )
        return not (is_trivial or has_tensor_lists or resizes_variable)

    # The methods below find what replaces node outputs and control inputs of the original graph.

    def _replica_values(self, value: Value) -> list[Value]:
        """Return the values in the new graph that replace a node output, one for each replica."""
        if value not in self._out.values:
            node = self._graph.nodes.get(value.producer)
            if node is None or not op_traits.is_constant(node.definition):
                raise LoweringError(
                    f"output {value.output_index} of {value.producer!r} is used, but no node of "
                    f"the computation produces it. Report this graph as a bug of tpuserve."
                )
            name = self._out.add_node(node.name, node.definition, [], [])
            self._out.values[value] = [Value(name)] * self._num_replicas
        return self._out.values[value]

    def _map_controls(self, names: Iterable[str]) -> list[str]:
        """Return the names of the nodes in the new graph that replace some control inputs."""
        # A control input may come from a node outside of the TPU computation. Such a node has the
        # same name in the new graph.
        return [
            awaited
            for name in names
            for awaited in self._out.awaited.get(name, [] if name in self._graph.nodes else [name])
        ]
