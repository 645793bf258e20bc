"""A body that N replicas run in step, as one body that runs on a CPU."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpuserve.errors import LoweringError
from tpuserve.lowering.ir import graph_ir, op_traits, outlining
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes import clustering, cross_replica_control_flow
from tpuserve.lowering.passes.canonicalize import canonicalize_graph
from tpuserve.lowering.passes.clustering import Cluster, ClusterClosure, ClusterKind
from tpuserve.lowering.passes.replica_invariance import invariant_values, must_split
from tpuserve.lowering.passes.variable_ordering import VariableOrdering
from tpuserve.lowering.rules import collectives, infeed_outfeed
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef

# Not worth a call into XLA, when nothing else is there.
_TRIVIAL = frozenset(("Identity", "NoOp", "Const"))


@dataclass
class ReplicaContext:
    """Who runs a body, and how.

    Attributes:
      cores: for each replica, the ordinal of the core whose infeed and outfeed it has.
      library: function name → function; those that lowering makes are added.
      compiled: whether XLA compiles each computation.
    """

    cores: Sequence[int]
    library: "dict[str, FunctionDef]"
    compiled: bool = True

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.cores)

    def add(self, body: GraphIR, name: str, *, must_compile: bool = False) -> str:
        """Makes a function of a body; returns its name, which is new to the library."""
        name = next(
            each
            for each in itertools.chain([name], (f"{name}_{n}" for n in itertools.count(1)))
            if each not in self.library
        )
        function = graph_ir.to_function_def(body, name, self.library)
        if must_compile:
            function.attr[outlining.MUST_COMPILE].b = True
        self.library[name] = function
        return name


@dataclass
class UnrolledGraph:
    """The one body of all replicas.

    Attributes:
      nodes: in order.
      values: argument or output of the original body → what each replica has in its place.
      after: node of the original body → the nodes to wait for in its place.
    """

    nodes: list[Node] = field(default_factory=list)
    values: dict[Value, list[Value]] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)


def unroll_replicas(
    body: GraphIR,
    values: Mapping[Value, list[Value]],
    replicas: ReplicaContext,
    prefix: str,
    taken: Iterable[str] = (),
) -> UnrolledGraph:
    """What all replicas of a body do, in ops that a CPU has.

    Args:
      body: what one replica does.
      values: what each replica has in place of each argument of the body, and of each output of
        a node that the body refers to and does not hold.
      replicas: who runs it.
      prefix: of the names of functions that are made.
      taken: names that nodes must not have.

    Raises:
      LoweringError: something has no form on a CPU.
    """
    return _ReplicaUnroller(body, values, replicas, prefix, taken).run()


class _ReplicaUnroller:
    def __init__(
        self,
        body: GraphIR,
        values: Mapping[Value, list[Value]],
        replicas: ReplicaContext,
        prefix: str,
        taken: Iterable[str],
    ) -> None:
        self._original = body
        self._body = canonicalize_graph(body, replicas.library)
        self._replicas = replicas
        self._prefix = prefix
        self._taken = {*taken, *body.arguments}
        self._out = UnrolledGraph(values=dict(values))
        same = {
            output for output, each in values.items() if all(value == each[0] for value in each)
        }
        self._uniform = invariant_values(self._body, same, replicas.count, replicas.library)
        self._together = {
            each.name
            for each in self._body.nodes.values()
            if must_split(each, self._body, self._uniform, replicas.count, replicas.library)
        }

    def run(self) -> UnrolledGraph:
        library = self._replicas.library
        cut = clustering.partition_into_clusters(self._body, self._uniform, library, self._together)
        closures = [
            clustering.close_over_shapes(unit, self._body, self._uniform, library)
            if unit.kind is not ClusterKind.SINGLE_OP
            else ClusterClosure({}, list(unit.nodes[0].inputs))
            for unit in cut
        ]
        order = VariableOrdering(self._body, library)
        for unit, closure in zip(cut, closures, strict=True):
            before = order.before(unit, closure)
            if unit.kind is ClusterKind.SINGLE_OP:
                made = self._emit_op(unit.nodes[0], before)
            else:
                wanted = clustering.live_out_values(unit, closures, self._body)
                made = self._emit_cluster(unit, closure, list(wanted), before)
            order.done(unit, closure, made)
        self._bind_results()
        return self._out

    def _bind_results(self) -> None:
        """Says under the names of the original body what became of its results."""
        for original, result in zip(self._original.results, self._body.results, strict=True):
            node = self._body.nodes.get(result.producer)
            if node is not None and node.definition.op == "Const":
                # Whoever waits for a result waits for what the constant was told to wait for.
                controls = self._controls(node.controls)
                copy = Value(self._add(node.name, node.definition, [], controls))
                self._out.values[original] = [copy] * self._replicas.count
            else:
                self._out.values[original] = self._values(result)
        for name, each in zip(self._original.kept, self._body.kept, strict=True):
            node = self._body.nodes.get(each)
            if node is not None and node.definition.op == "Const":
                self._out.after[name] = self._controls(node.controls)
            else:
                self._out.after[name] = self._out.after.get(each, [])

    # Nodes that stand alone.

    def _emit_op(self, node: Node, before: list[str]) -> list[str]:
        definition, library = node.definition, self._replicas.library
        controls = [*before, *self._controls(node.controls)]
        first = len(self._out.nodes)
        if definition.op in op_traits.COLLECTIVES:
            copies = self._values(node.inputs[0])
            results = collectives.lower_collective(
                node, self._body.nodes, copies, self._maker(node.name, controls)
            )
            self._out.values[Value(node.name)] = results
        elif definition.op == op_traits.REPLICA_ID:
            make = self._maker(node.name, controls)
            self._out.values[Value(node.name)] = [
                make("Const", [], value=replica) for replica in range(self._replicas.count)
            ]
        elif definition.op in op_traits.DEQUEUES:
            self._each_replica(node, infeed_outfeed.lower_dequeue, controls)
        elif definition.op in op_traits.ENQUEUES:
            self._each_replica(node, infeed_outfeed.lower_enqueue, controls)
        elif clustering.is_on_host(node):
            self._emit_per_replica(node, controls)
        elif node.name in self._together or op_traits.communicates(definition, library):
            self._emit_joint(node, controls)
        else:
            self._emit_per_replica(node, controls)
        made = [each.name for each in self._out.nodes[first:]]
        self._out.after[node.name] = made or controls
        return made

    def _each_replica(
        self, node: Node, make: Callable[..., list[Value]], controls: list[str]
    ) -> None:
        kinds = [each for _, each in op_traits.outputs_of(node.definition, self._replicas.library)]
        copies = [
            make(
                node.definition,
                core,
                [self._values(each)[replica] for each in node.inputs],
                self._maker(f"{node.name}/replica_{replica}", controls),
            )
            for replica, core in enumerate(self._replicas.cores)
        ]
        for number in range(len(kinds)):
            self._out.values[Value(node.name, number)] = [each[number] for each in copies]

    def _emit_per_replica(self, node: Node, controls: list[str]) -> None:
        outputs = op_traits.outputs_of(node.definition, self._replicas.library)
        is_once = all(each in self._uniform for each in node.inputs) and not op_traits.is_random(
            node.definition, self._replicas.library
        )
        copies = []
        for replica in range(1 if is_once else self._replicas.count):
            name = node.name if is_once else f"{node.name}/replica_{replica}"
            inputs = [self._values(each)[replica] for each in node.inputs]
            copies.append(self._add(name, node.definition, inputs, controls))
        for number in range(len(outputs)):
            self._out.values[Value(node.name, number)] = [
                Value(copies[0 if is_once else replica], number)
                for replica in range(self._replicas.count)
            ]

    def _emit_joint(self, node: Node, controls: list[str]) -> None:
        definition, inputs, is_uniform = cross_replica_control_flow.fuse_replicas(
            node,
            [self._values(each) for each in node.inputs],
            self._uniform,
            self._replicas,
            self._expand_function,
        )
        name = self._add(node.name, definition, inputs, controls)
        number = itertools.count()
        for position, each in enumerate(is_uniform):
            copies = [Value(name, next(number)) for _ in range(1 if each else self._replicas.count)]
            self._out.values[Value(node.name, position)] = (
                copies * self._replicas.count if each else copies
            )

    def _expand_function(
        self, name: str, is_uniform_argument: Sequence[bool], is_uniform_result: Sequence[bool]
    ) -> str:
        """A function that does for all replicas what the named one does for one."""
        body = graph_ir.from_function_def(self._replicas.library[name], self._replicas.library)
        arguments: dict[str, int] = {}
        values: dict[Value, list[Value]] = {}
        for (argument, kind), is_uniform in zip(
            body.arguments.items(), is_uniform_argument, strict=True
        ):
            names = (
                [argument]
                if is_uniform
                else [f"{argument}_replica_{each}" for each in range(self._replicas.count)]
            )
            arguments.update(dict.fromkeys(names, kind))
            copies = [Value(each) for each in names]
            values[Value(argument)] = copies * self._replicas.count if is_uniform else copies
        expanded = unroll_replicas(body, values, self._replicas, name, arguments)
        results = []
        for result, is_uniform in zip(body.results, is_uniform_result, strict=True):
            copies = expanded.values[result]
            results += copies[:1] if is_uniform else copies
        kept = [each for name in body.kept for each in expanded.after.get(name, ())]
        return self._replicas.add(
            GraphIR(
                {each.name: each for each in expanded.nodes},
                arguments,
                results=results,
                kept=list(dict.fromkeys(kept)),
            ),
            f"{name}_replicated",
        )

    # Computations.

    def _emit_cluster(
        self, unit: Cluster, closure: ClusterClosure, wanted: list[Value], before: list[str]
    ) -> list[str]:
        members = {each.name for each in unit.nodes}
        controls = [
            *before,
            *self._controls(
                each for node in unit.nodes for each in node.controls if each not in members
            ),
        ]
        kept = [
            each.name
            for each in unit.nodes
            if op_traits.is_stateful(each.definition, self._replicas.library)
        ]
        if not wanted and not kept:
            for each in unit.nodes:
                self._out.after[each.name] = controls
            return []
        names = {each: f"input_{number}" for number, each in enumerate(closure.inputs)}
        types = graph_ir.value_types(self._body, self._replicas.library)
        inner = GraphIR(
            {
                each.name: Node(
                    each.name,
                    each.definition,
                    [Value(names[i]) if i in names else i for i in each.inputs],
                    [c for c in each.controls if c in closure.nodes],
                )
                for each in closure.nodes.values()
            },
            {name: types[each] for each, name in names.items()},
            results=wanted,
            kept=kept,
        )
        self._refuse_diverging(unit, wanted)
        is_trivial = all(each.definition.op in _TRIVIAL for each in closure.nodes.values())
        # XLA keeps lists of tensors, as loops hand on to their gradients, to itself.
        has_lists = any(types[each] == dtypes.VARIANT for each in (*names, *wanted))
        must_compile = self._replicas.compiled and not is_trivial and not has_lists
        label = f"{self._prefix}/{unit.kind.name.lower()}_{unit.level}"
        count = self._replicas.count if unit.kind is ClusterKind.PER_REPLICA else 1
        is_seeded = not must_compile and any(map(outlining.is_seeded, inner.nodes.values()))
        function, made = "", []
        for replica in range(count):
            if not function or is_seeded:
                function = self._replicas.add(
                    outlining.reseed(inner, replica) if is_seeded else inner,
                    label.replace("/", "_"),
                    must_compile=must_compile,
                )
            call = outlining.make_call(
                function, self._replicas.library[function], must_compile=must_compile
            )
            name = f"{label}/replica_{replica}" if count > 1 else label
            inputs = [self._values(each)[replica] for each in closure.inputs]
            made.append(self._add(name, call, inputs, controls))
        for number, output in enumerate(wanted):
            copies = [Value(name, number) for name in made]
            self._out.values[output] = copies * (self._replicas.count // count)
        for each in unit.nodes:
            self._out.after[each.name] = made
        return made

    def _refuse_diverging(self, unit: Cluster, wanted: list[Value]) -> None:
        if unit.kind is not ClusterKind.VARIABLE_UPDATE or self._replicas.count == 1:
            return
        for each in wanted:
            if each not in self._uniform:
                node = self._body.nodes[each.producer]
                raise LoweringError(
                    f"{node.definition.op} {node.name!r} updates a variable and gives a result "
                    f"that differs between replicas, which has no form on a CPU. Make the update "
                    f"an op of its own, outside of the function or branch."
                )

    # What both need.

    def _values(self, output: Value) -> list[Value]:
        if output not in self._out.values:
            node = self._body.nodes.get(output.producer)
            if node is None or node.definition.op != "Const":
                raise LoweringError(
                    f"output {output.number} of {output.producer!r} is needed and nobody gives it."
                )
            name = self._add(node.name, node.definition, [], [])
            self._out.values[output] = [Value(name)] * self._replicas.count
        return self._out.values[output]

    def _controls(self, names: Iterable[str]) -> list[str]:
        # A node that is not of this body keeps its name: it lies outside.
        return [
            after
            for each in names
            for after in self._out.after.get(each, [] if each in self._body.nodes else [each])
        ]

    def _maker(self, prefix: str, controls: list[str]) -> Callable[..., Value]:
        from tensorflow.core.framework.node_def_pb2 import NodeDef
        from tensorflow.python.framework import tensor_util

        def make(op: Any, inputs: Sequence[Value], **attributes: Any) -> Value:
            definition = op if isinstance(op, NodeDef) else NodeDef(op=op)
            if definition.op == "Const" and attributes:
                value = tensor_util.make_tensor_proto(attributes.pop("value"))
                definition.attr["dtype"].type = value.dtype
                definition.attr["value"].tensor.CopyFrom(value)
            for name, value in attributes.items():
                _set(definition.attr[name], name, value)
            return Value(self._add(f"{prefix}/{definition.op}", definition, list(inputs), controls))

        return make

    def _add(self, name: str, definition: Any, inputs: list[Value], controls: list[str]) -> str:
        name = next(
            each
            for each in itertools.chain([name], (f"{name}_{n}" for n in itertools.count(1)))
            if each not in self._taken
        )
        self._taken.add(name)
        # An edge to what it reads already would say nothing.
        data = {each.producer for each in inputs}
        after = [each for each in dict.fromkeys(controls) if each not in data and each != name]
        self._out.nodes.append(Node(name, definition, inputs, after))
        return name


def _set(attribute: Any, name: str, value: Any) -> None:
    if isinstance(value, list):
        attribute.list.type.extend(value)
    elif name in ("T", "Tidx", "dtype"):
        attribute.type = value
    else:
        attribute.i = value
