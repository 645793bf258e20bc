"""Turns one training step of a TPU program into a function that jax can run on PJRT devices.

In a program for a TPU, each replica runs a loop: a While op with the attribute `_tpu_replicate`.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import tensorflow as tf

from tpuserve.devices import jax_client
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.graph.graph_walk import find_called_functions, skip_identities
from tpuserve.graph.references import data_inputs, node_name, tensor_name
from tpuserve.lowering import tpu_kernels
from tpuserve.lowering.passes.automatic_host_ops import mark_host_ops
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec
from tpuserve.pjrt import collectives, host_part, randomness, step_outfeed
from tpuserve.pjrt.exported_module import export_module
from tpuserve.pjrt.read_order import read_before_changes
from tpuserve.pjrt.replica_loop import LoopArguments, find_loop, outside_error
from tpuserve.pjrt.row_shards import use_local_rows
from tpuserve.stablehlo import jax_internals, translator, xla_errors
from tpuserve.stablehlo.abstract_tensor import (
    AbstractTensor,
    VariableSpec,
    shape_from_proto,
    sizes_of,
)
from tpuserve.stablehlo.function_graphs import FunctionLibrary
from tpuserve.stablehlo.translator import generate_stablehlo, register_functions
from tpuserve.tensorflow_internals import eager_context

# Prefixes of the names of attributes that place an op on a TPU or together with another op. They
# are removed, because the step does not run in TensorFlow.
_PLACEMENT_ATTRIBUTES = ("_tpu", "_pivot", "_class", "_xla_inferred")
# The key of the random ops is a sum of three products: the random seed, the number of the step and
# the index of the replica, each multiplied by one of these factors.
_KEY_FACTORS = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


class ReplicaStep:
    """The training step that each replica of a TPU program runs, as a function for jax.

    The arguments of the exported function are the tensors of a batch (`feeds`), the position, and
    the variables.

    All replicas pass the same variables.

    Attributes:
      unknown_sizes: the dimensions of `feeds` whose sizes are unknown in the graph, as pairs (index
        of the tensor, dimension). `feeds` has assumed sizes for them; `with_sizes` sets others.
      batch_variables: indices of the variables whose first dimension is the number of embedding ids
        in a batch. `variables` has their shapes for the sizes of `feeds`.
      host_part: the ops that the host runs after each step; None if there are none. The tensors
        that they take are the `results` from `num_sent` on.
      row_shardings: index of an embedding table whose rows are divided among the replicas → which
        replica stores which rows.

    Args:
      line_of: takes a node as "node@function"; returns the line of user code that created the
        node, as "file:number", or None if it is unknown.
      sizes: a size for each of the dimensions in `unknown_sizes`; None for 1 in all of them.
    """

    def __init__(
        self,
        graph: Any,
        line_of: xla_errors.LineOf = xla_errors.unknown_line,
        sizes: Sequence[int] | None = None,
    ) -> None:
        self._graph, self._line_of = graph, line_of
        functions = {function.signature.name: function for function in graph.library.function}
        mark_host_ops(graph.node, functions)
        loop = find_loop(graph)
        self._name = loop.attr["body"].func.name
        library = FunctionLibrary(graph)
        body = library.body(self._name)
        arguments = LoopArguments.from_loop(loop, body, graph)
        self.iterations = arguments.iterations
        self.variables: tuple[VariableSpec, ...] = tuple(arguments.variables.values())
        self.row_shardings = {
            list(arguments.variables).index(name): sharding
            for name, sharding in arguments.row_shardings.items()
        }
        self.batch_variables = tuple(map(list(arguments.variables).index, arguments.batch_rows))
        self._arguments = arguments
        self._body = body
        self._nodes = library.new_graph_def()
        self._feed_names: list[str] = []
        feeds: list[AbstractTensor] = []
        for node in body.nodes:
            if f"{node.name}:0" in body.inputs:
                continue
            if op_spec(node.op).kind is OpKind.INFEED_DEQUEUE:
                tensors = _dequeued_tensors(node)
                self._feed_names += [f"{node.name}:{index}" for index in range(len(tensors))]
                feeds += tensors
            else:
                self._nodes.node.append(node)
        self.unknown_sizes = tuple(
            (index, dimension)
            for index, feed in enumerate(feeds)
            for dimension, size in enumerate(feed.shape or ())
            if size is None
        )
        self.feeds = _with_sizes(feeds, self.unknown_sizes, sizes or [1] * len(self.unknown_sizes))
        _remove_uncalled_functions(self._nodes)
        self.host_part = host_part.remove_host_part(
            self._nodes, arguments.variables, arguments.resources, self._refuse
        )
        self._check_resources()
        _remove_uncalled_functions(self._nodes)
        self._check_ops()
        use_local_rows(self._nodes, arguments.row_shardings, self._refuse)
        self._sent = step_outfeed.remove_outfeed(self._nodes, self._refuse)
        self._drop_control_inputs()
        specs = self._infer_tensors()
        if self.batch_variables:
            self._set_batch_shapes(specs)
            specs = self._infer_tensors()
        self.num_sent = len(self._sent.tensors)
        self._fetches = (*self._sent.tensors, *(self.host_part.tensors if self.host_part else ()))
        self.results = tuple(specs[name] for name in self._fetches)
        shapes = {node_name(name): specs[name].shape for name in specs if name[-2:] == ":0"}
        collectives.replace_collectives(self._nodes, shapes, self._refuse)
        self.is_random = randomness.make_stateless(self._nodes, self._refuse)
        read_before_changes(self._nodes.node)
        tpu_kernels.replace_in_graph(self._nodes)
        for nodes in (self._nodes.node, *(f.node_def for f in self._nodes.library.function)):
            _remove_placement(nodes)
        self._module: _StepModule | None = None
        self._exported: dict[str, Any] = {}

    def with_sizes(self, sizes: Sequence[int]) -> "ReplicaStep":
        """Return a copy of this step for batches with the given sizes.

        XLA compiles an executable for each combination of sizes.
        """
        return ReplicaStep(self._graph, self._line_of, sizes)

    @property
    def changed_variables(self) -> tuple[int, ...]:
        """The indices, in `variables`, of the variables that the step changes."""
        return self._translate().changed

    @property
    def module(self) -> bytes:
        """The function as a serialised StableHLO module, in StableHLO's portable form.

        jax cannot run this module, because its collectives have the form that TensorFlow's XLA
        bridge writes.

        Raises:
          UnsupportedOnTpu: XLA cannot compile an op of the step.
        """
        return self._translate().serialized

    @property
    def variables_of_replica(self) -> tuple[VariableSpec, ...]:
        """The variables with the shapes that they have on one replica.

        A variable whose rows are divided among the replicas has fewer rows there.
        """
        return tuple(
            dataclasses.replace(
                spec, shape=(self.row_shardings[index].rows_per_replica, *(spec.shape or ())[1:])
            )
            if index in self.row_shardings
            else spec
            for index, spec in enumerate(self.variables)
        )

    def argument_specs(self) -> list[Any]:
        """Return a jax.ShapeDtypeStruct for each argument of the exported function."""
        feeds = [_array_spec(feed.shape, feed.dtype) for feed in self.feeds]
        variables = [
            _array_spec(variable.shape, variable.dtype) for variable in self.variables_of_replica
        ]
        return [*feeds, _array_spec([4], tf.int64), *variables]

    def export(self, platform: str) -> Any:
        """Return the step as a jax.export.Exported.

        The docstring of this class describes the arguments and results of the step.

        Args:
          platform: the platform of the devices that will run the step, "tpu", "cpu" or "cuda".

        Raises:
          UnsupportedOnTpu: XLA cannot compile an op of the step, which the message names.
        """
        if platform not in self._exported:
            self._exported[platform] = export_module(
                self._translate().serialized, self.argument_specs(), platform, name="replica_step"
            )
        return self._exported[platform]

    def _translate(self) -> "_StepModule":
        """Return the step in StableHLO; the first call translates it, and later calls reuse it."""
        if self._module is None:
            specs = [
                *(tf.TensorSpec(feed.shape, feed.dtype) for feed in self.feeds),
                tf.TensorSpec([4], tf.int64),
            ]
            # `register_functions` renames the functions of a graph, so pass a copy.
            graph = type(self._nodes)()
            graph.CopyFrom(self._nodes)
            with eager_context.eager_mode():
                values = [_without_value(variable) for variable in self.variables_of_replica]

                def step(*arguments: Any) -> list[Any]:
                    # Use wrap_function and not tf.function: tf.function would add control inputs
                    # that order the uses of a variable by the creation of the ops.
                    imported = tf.compat.v1.wrap_function(
                        lambda *arguments: self._import_step(graph, arguments, values), specs
                    )
                    return list(imported(*arguments))

                try:
                    function = tf.function(step, jit_compile=True, autograph=False)
                    with register_functions(graph):
                        serialized = generate_stablehlo(
                            function.experimental_get_compiler_ir(*specs)
                        )
                except (ValueError, TypeError, tf.errors.OpError) as error:
                    text = xla_errors.describe_error(error, self._name, self._line_of)
                    raise UnsupportedOnTpu(f"the step of a replica: {text}") from error
            changed = _find_changed_variables(serialized, len(specs), len(self.results) + 1)
            self._module = _StepModule(serialized, changed)
        return self._module

    def _import_step(
        self, graph: Any, arguments: Sequence[Any], variables: Sequence[Any]
    ) -> list[Any]:
        *feeds, position = arguments
        input_map = dict(zip(self._feed_names, feeds, strict=True))
        captured = tf.compat.v1.get_default_graph()
        for name, variable in zip(self._arguments.variables, variables, strict=True):
            input_map[name] = captured.capture(variable.handle)
        for name in self._arguments.counters:
            input_map[name] = tf.cast(position[2], tf.int32)
        for name in self._arguments.counts:
            input_map[name] = tf.cast(position[3], tf.int32)
        input_map.update(
            {name: tf.constant(value) for name, value in self._arguments.constants.items()}
        )
        if self.is_random:
            input_map[f"{randomness.KEY}:0"] = _make_key(position)
        used = {tensor_name(name) for node in graph.node for name in data_inputs(node)}
        condition = [] if self._sent.condition is None else [self._sent.condition]
        outputs = [name for name in self._body.outputs if name not in self._body.inputs]
        on_host = self.host_part.targets if self.host_part else ()
        awaited = [name for name in self._body.control_outputs if node_name(name) not in on_host]
        fetches = [*self._fetches, *condition]
        fetched = [name for name in fetches if name not in input_map]
        imported = tf.import_graph_def(
            graph,
            input_map={name: tensor for name, tensor in input_map.items() if name in used},
            return_elements=[*fetched, *outputs, *awaited],
            name="",
        )
        tensors = {**input_map, **dict(zip(fetched, imported, strict=False))}
        with tf.control_dependencies(imported[len(fetched) :]):
            sent = [tf.identity(tensors[name]) for name in self._fetches]
            is_sent = tf.constant(True)
            for name in condition:
                is_sent = tf.equal(tensors[name], self._sent.sends_if)
            return [*sent, tf.identity(is_sent)]

    def _infer_tensors(self) -> dict[str, AbstractTensor]:
        with tf.Graph().as_default() as graph:
            input_map: dict[str, Any] = {
                name: tf.compat.v1.placeholder(feed.dtype, feed.shape)
                for name, feed in zip(self._feed_names, self.feeds, strict=True)
            }
            for name, variable in zip(
                self._arguments.variables, self.variables_of_replica, strict=True
            ):
                input_map[name] = tf.raw_ops.VarHandleOp(
                    dtype=variable.dtype, shape=variable.shape, shared_name=variable.name
                )
            for name in (*self._arguments.counters, *self._arguments.counts):
                input_map[name] = tf.compat.v1.placeholder(tf.int32, [])
            for name, value in self._arguments.constants.items():
                input_map[name] = tf.constant(value)
            used = {tensor_name(name) for node in self._nodes.node for name in data_inputs(node)}
            used_map = {name: tensor for name, tensor in input_map.items() if name in used}
            cleaned = type(self._nodes)()
            cleaned.CopyFrom(self._nodes)
            _remove_placement(cleaned.node)
            tf.import_graph_def(cleaned, input_map=used_map, name="step")
            tensors = {
                f"{operation.name[len('step/') :]}:{index}": output
                for operation in graph.get_operations()
                for index, output in enumerate(operation.outputs)
                if operation.name.startswith("step/")
            }
            return {
                name: AbstractTensor(tensor.dtype, _static_shape(tensor))
                for name, tensor in {**tensors, **input_map}.items()
            }

    def _set_batch_shapes(self, specs: dict[str, AbstractTensor]) -> None:
        """Set the shapes of `batch_variables` to those of the tensors that are assigned to them."""
        by_name = {node.name: node for node in self._nodes.node}
        assigned = {
            tensor_name(skip_identities(node.input[0], by_name)): specs[
                tensor_name(node.input[1])
            ].shape
            for node in self._nodes.node
            if node.op == "AssignVariableOp"
        }
        self.variables = tuple(
            dataclasses.replace(spec, shape=assigned[name])
            if name in self._arguments.batch_rows
            else spec
            for name, spec in self._arguments.variables.items()
        )

    def _drop_control_inputs(self) -> None:
        """Remove all control inputs that name an argument of the step or an infeed op."""
        argument_names = {node_name(name) for name in (*self._feed_names, *self._body.inputs)}
        for node in self._nodes.node:
            remaining = [
                name for name in node.input if name[0] != "^" or name[1:] not in argument_names
            ]
            del node.input[:]
            node.input.extend(remaining)

    def _check_resources(self) -> None:
        """Check that the devices use no resource of the host, such as a table."""
        for node in self._nodes.node:
            for name in map(tensor_name, data_inputs(node)):
                outer = self._arguments.resources.get(name)
                if outer is not None:
                    raise outside_error(
                        next(other for other in self._graph.node if other.name == node_name(outer))
                    )

    def _check_ops(self) -> None:
        """Check that the step has no op that only TensorFlow's own TPU runtime can run."""
        functions = self._nodes.library.function
        bodies = ((function.signature.name, function.node_def) for function in functions)
        for name, nodes in (("", self._nodes.node), *bodies):
            for node in nodes:
                if op_traits.is_on_host(node):
                    self._refuse(node, name, "belongs to an outside compilation")
                if op_spec(node.op).kind in (OpKind.TPU_RUNTIME, OpKind.HOST_TRANSFER):
                    self._refuse(node, name)
                if node.op == "XlaSharding":
                    self._refuse(node, name, "splits a tensor over the cores of a replica")

    def _refuse(self, node: Any, function: str, reason: str = "has no way to PJRT") -> NoReturn:
        line = self._line_of(f"{node.name}@{function or self._name}")
        created = f", created at {line}" if line else ""
        raise UnsupportedOnTpu(
            f"the step of a replica cannot run on PJRT devices: {node.op} {node.name!r} in "
            f"function {function or self._name}{created}, {reason}. Remove the op from model_fn, "
            f"or emulate a TPU: TPUSERVE_TPU_RUNTIME=emulated."
        )


@dataclass(frozen=True)
class _StepModule:
    """A training step, translated to StableHLO."""

    serialized: bytes
    changed: tuple[int, ...]


def _remove_uncalled_functions(graph: Any) -> None:
    """Remove functions from a GraphDef that its nodes do not call, directly or indirectly."""
    functions = {function.signature.name: function for function in graph.library.function}
    reachable = [functions[name] for name in sorted(find_called_functions(graph.node, functions))]
    del graph.library.function[:]
    graph.library.function.extend(reachable)


def _dequeued_tensors(node: Any) -> list[AbstractTensor]:
    if "dtypes" in node.attr:
        types, shapes = node.attr["dtypes"].list.type, node.attr["shapes"].list.shape
    else:
        types, shapes = [node.attr["dtype"].type], [node.attr["shape"].shape]
    return [
        AbstractTensor(tf.as_dtype(dtype), shape_from_proto(shape))
        for dtype, shape in zip(types, shapes, strict=True)
    ]


def _with_sizes(
    feeds: Sequence[AbstractTensor], unknown: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> tuple[AbstractTensor, ...]:
    shapes = [None if feed.shape is None else list(feed.shape) for feed in feeds]
    for (index, dimension), size in zip(unknown, sizes, strict=True):
        shape = shapes[index]
        assert shape is not None
        shape[dimension] = size
    return tuple(
        AbstractTensor(feed.dtype, None if shape is None else tuple(shape))
        for feed, shape in zip(feeds, shapes, strict=True)
    )


def _remove_placement(nodes: Any) -> None:
    for node in nodes:
        for name in [name for name in node.attr if name.startswith(_PLACEMENT_ATTRIBUTES)]:
            del node.attr[name]
        node.device = ""


def _without_value(variable: VariableSpec) -> Any:
    shape = sizes_of(variable.shape)
    return tf.Variable(translator.make_uninitialized_tensor(shape, variable.dtype))


def _make_key(position: Any) -> Any:
    """Build the key of the random ops of a step, a tensor uint64 [1], in the default graph."""
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name=f"{randomness.KEY}_replica", op="XlaReplicaId")
    (replica,) = tf.import_graph_def(graph, return_elements=[f"{graph.node[0].name}:0"], name="")
    words = (*tf.unstack(tf.cast(position[:2], tf.uint64)), tf.cast(replica, tf.uint64))
    products = [
        word * tf.constant(factor, tf.uint64)
        for word, factor in zip(words, _KEY_FACTORS, strict=True)
    ]
    return tf.reshape(sum(products[1:], products[0]), [1])


def _find_changed_variables(module: bytes, num_given: int, num_results: int) -> tuple[int, ...]:
    parsed = jax_internals.parse_stablehlo(module)
    changed = jax_internals.find_aliases(parsed)
    assert sorted(changed) == list(range(num_results, len(jax_internals.result_types(parsed))))
    return tuple(changed[result] - num_given for result in sorted(changed))


def _array_spec(shape: Any, dtype: Any) -> Any:
    return jax_client.make_array_spec(sizes_of(shape), dtype.as_numpy_dtype)


def _static_shape(tensor: Any) -> Any:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
