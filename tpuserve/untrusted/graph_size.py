"""Computes how large an untrusted graph becomes when TensorFlow loads and runs it.

The size is the memory of constants and of tensors that are computed from constants, and the number
of nodes after functions are inlined.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuserve.graph.attributes import attribute_value
from tpuserve.graph.references import data_inputs, node_name, tensor_name
from tpuserve.untrusted import content_rules, size_rules
from tpuserve.untrusted.model_runs import ModelRun
from tpuserve.untrusted.program import FIRST_ARGUMENT, Program, Site
from tpuserve.untrusted.tensor_values import (
    UNKNOWN,
    UNKNOWN_CONSTANT,
    TensorValue,
    element_bytes,
    join,
    tensor_proto_bytes,
    value_from_proto,
)

# Limits for untrusted models: the deepest nesting of function calls, and the largest number of
# nodes after all functions are inlined. TensorFlow inlines functions before a run, which takes
# minutes for 3,000 nested functions.
MAX_DEPTH = 100
MAX_NODES = 10_000_000
# The number of nodes after which the evaluation becomes less precise, to limit its time. From
# then on, each function is evaluated once, with unknown arguments, and no longer for each
# combination of arguments.
_MAX_EVALUATED = 500_000

# `FIRST_ARGUMENT`, extended by BatchFunction: op type → the position of the input that the op's
# functions get as their first argument.
_FIRST_ARGUMENT = {**FIRST_ARGUMENT, "BatchFunction": 0}
_LOOPS = frozenset({"StatelessWhile", "While"})
# Names of attributes that can have the dtype of a node's output. The dtype is taken from the first
# of these attributes that the node has.
_DTYPE_ATTRIBUTES = ("DstT", "dtype", "out_type", "element_dtype", "T", "Tidx")
_BOOLEAN, _FLOAT = 10, 1
_COMPARISONS = frozenset(
    (
        *("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual"),
        *("LogicalAnd", "LogicalNot", "LogicalOr"),
    )
)
# Ops without inputs that allocate a tensor of the shape in their attribute "shape".
_ALLOCATING_SOURCES = frozenset({"FakeParam", "TemporaryVariable"})
# Prefixes of the types of ops that decode or decompress a string, such as a picture. The size of
# their output depends on the content of the string: a small constant can become a huge tensor.
_DECODERS = (
    *("DecodeBmp", "DecodeCompressed", "DecodeGif", "DecodeImage", "DecodeJ", "DecodePng"),
    *("DecodeWebP", "DecodeAndCropJpeg", "ParseTensor"),
)
# The type of the op whose output closes a loop (while_loop) in a graph of TensorFlow 1. Its output
# is ignored when nodes are sorted, because it makes a cycle in the graph.
_BACK_EDGE = "NextIteration"


_TOO_DEEP = f"its functions are nested more than {MAX_DEPTH} deep"


class UnboundedSize(Exception):
    """The error for a graph that exceeds a limit, or whose size is unknown.

    For example, the size is unknown if a function calls itself.
    """


@dataclass(frozen=True)
class Allocation:
    """The memory that a node allocates for its output, beyond the memory of its inputs.

    Attributes:
      num_bytes: the size of the output minus the sizes of all inputs, in bytes.
      site: the node; None in the initial values of `GraphSize`, which belong to no node.
    """

    num_bytes: int = 0
    site: Site | None = None


@dataclass
class GraphSize:
    """The size of a graph, or of the body of a function with the functions that it calls.

    Attributes:
      num_nodes: the number of nodes after all functions are inlined.
      depth: how deep function calls are nested.
      constant_bytes: the bytes of all constant tensors: their values do not depend on a request.
      largest: the largest constant tensor.
      largest_variable: the largest tensor whose value depends on a request, but whose size is
        fixed by the graph.
    """

    num_nodes: int = 0
    depth: int = 0
    constant_bytes: int = 0
    largest: Allocation = field(default_factory=Allocation)
    largest_variable: Allocation = field(default_factory=Allocation)

    def add(self, other: "GraphSize") -> None:
        """Add the size of a function that this graph or function calls."""
        self.num_nodes += other.num_nodes
        self.depth = max(self.depth, other.depth + 1)
        self.constant_bytes += other.constant_bytes
        self.largest = max(self.largest, other.largest, key=_num_bytes)
        self.largest_variable = max(self.largest_variable, other.largest_variable, key=_num_bytes)

    def add_tensor(self, allocation: Allocation, *, is_constant: bool) -> None:
        """Add the memory that a node allocates for a tensor.

        Args:
          allocation: the size, and the node.
          is_constant: whether the value of the tensor is the same for all requests.
        """
        if is_constant:
            self.constant_bytes += allocation.num_bytes
            self.largest = max(self.largest, allocation, key=_num_bytes)
        else:
            self.largest_variable = max(self.largest_variable, allocation, key=_num_bytes)


class SizeEvaluator:
    """Computes the memory that the tensors of a session run need, without running it.

    It infers the shapes of all tensors in the graph and in its functions.
    """

    def __init__(self, program: Program, run: ModelRun, *, enters_functions: bool = True) -> None:
        """Create an evaluator of one session run.

        Args:
          program: the metagraph.
          run: the nodes that the run can execute, and the tensors that are fed.
          enters_functions: whether the bodies of called functions are included.
        """
        self.run = run
        self._program = program
        self._enters_functions = enters_functions
        self._stored: dict[tuple[str, str], int] = {}
        self._bodies: dict[str, list[Any]] = {}
        self._calls: dict[tuple[str, Sequence[TensorValue]], tuple[list[TensorValue], GraphSize]]
        self._calls = {}
        self._stack: list[str] = []
        self._num_evaluated = 0

    def evaluate(self) -> GraphSize:
        """Return the size of the graph in this run.

        The bytes of constants that the SavedModel itself stores are not counted.

        Raises:
          UnboundedSize: the functions cannot be inlined, or an op decodes a constant, such as a
            picture, whose decoded size is unknown.
        """
        nodes = [site.node for site in self.run.reached.sites if not site.function]
        fed = self.run.fed | self.run.paths
        _, size = self._evaluate_nodes("", in_execution_order(nodes), {}, fed)
        size.constant_bytes -= sum(self._stored.values())
        return size

    def _evaluate_nodes(
        self,
        function: str,
        nodes: Sequence[Any],
        arguments: Mapping[str, TensorValue],
        fed: frozenset[str] = frozenset(),
    ) -> tuple[dict[str, list[TensorValue]], GraphSize]:
        """Compute the known properties of all tensors in the main graph or in a function's body.

        Args:
          function: the name of the function; empty for the main graph.
          nodes: the nodes, in the order of execution.
          arguments: argument name → the known properties of its value; empty for the main graph.
          fed: names, such as "x:0", of the tensors of the main graph that are fed.

        Returns:
          Node name → the known properties of its outputs; and the size of the graph or function.
        """
        outputs = {name: [value] for name, value in arguments.items()}
        size = GraphSize()
        for node in nodes:
            references = data_inputs(node)
            inputs = [_output(outputs, reference) for reference in references]
            if not function:
                inputs = [
                    value.as_variable() if tensor_name(reference) in fed else value
                    for reference, value in zip(references, inputs, strict=True)
                ]
            site = Site(function, node)
            outputs[node.name] = self._evaluate_node(site, inputs, references, size)
        self._num_evaluated += len(nodes)
        if size.depth > MAX_DEPTH:
            raise UnboundedSize(_TOO_DEEP)
        if size.num_nodes > MAX_NODES:
            raise UnboundedSize(
                f"its functions become {size.num_nodes:,} nodes when they are inlined, and at most "
                f"{MAX_NODES:,} are accepted"
            )
        return outputs, size

    def _evaluate_node(
        self, site: Site, inputs: list[TensorValue], references: list[str], size: GraphSize
    ) -> list[TensorValue]:
        """Return the known properties of a node's outputs, and add its allocations to a size.

        Args:
          site: the node, and the function that has it.
          inputs: the known properties of the node's data inputs.
          references: the names of these inputs, such as "x:0".
          size: the size of the graph or function so far, to which the tensors of the node are
            added.
        """
        node = site.node
        size.num_nodes += 1
        tensors = list(_tensor_protos(node.attr))
        if tensors:
            self._stored[site.function, node.name] = sum(proto.ByteSize() for proto in tensors)
        for tensor in tensors:
            size.add_tensor(Allocation(tensor_proto_bytes(tensor), site), is_constant=True)
        if node.op == "Const":
            return [value_from_proto(tensor) for tensor in tensors]
        if self._program.called_functions(node):
            if not self._enters_functions:
                return []
            return self._call_functions(node, inputs, size)
        if node.op.startswith(_DECODERS) and inputs and all(v.is_constant for v in inputs):
            raise UnboundedSize(f"{site} decodes a constant, which may have any size then")
        value = _output_value(node, inputs)
        known = dict(zip(references, inputs, strict=True)).values()
        growth = value.least_bytes - sum(other.least_bytes for other in known)
        if growth > 0:
            size.add_tensor(Allocation(growth, site), is_constant=value.is_constant)
        return [value]

    def _call_functions(
        self, node: Any, inputs: list[TensorValue], size: GraphSize
    ) -> list[TensorValue]:
        program = self._program
        direct = program.directly_called_functions(node)
        results = []
        for name in sorted(program.called_functions(node)):
            arguments = self._arguments(node, inputs, name) if name in direct else []
            result, called = self._call(name, arguments)
            size.add(called)
            results.append(result)
        if node.op not in _FIRST_ARGUMENT and node.op not in program.functions:
            return []
        return [join(values) for values in zip(*results, strict=False)]

    def _arguments(self, node: Any, inputs: list[TensorValue], name: str) -> list[TensorValue]:
        """Return the known properties of the arguments that a node passes to a function.

        Args:
          node: the NodeDef that calls the function.
          inputs: the known properties of the node's inputs.
          name: the name of the function.
        """
        if node.op in self._program.functions:
            return inputs
        if node.op in _FIRST_ARGUMENT:
            return inputs[_FIRST_ARGUMENT[node.op] :]
        if node.op in _LOOPS:
            # If the body of a loop returns a loop variable unchanged, the variable has its initial
            # value in all iterations. The values of all other loop variables are unknown.
            body = attribute_value(node, "body").func.name
            arguments = self._program.arguments(body)
            returned = self._returned_arguments(body)
            return [
                value if argument == result else UNKNOWN
                for value, argument, result in zip(inputs, arguments, returned, strict=False)
            ]
        return []

    def _returned_arguments(self, name: str) -> list[str]:
        """Return the names of the tensors that a function returns, one for each output.

        If an Identity op computes an output, the name is that of the op's input. So the caller of
        this method can recognise an argument that the function returns unchanged.
        """
        function = self._program.functions[name]
        nodes = {node.name: node for node in function.node_def if node.op == "Identity"}
        references = [function.ret[output.name] for output in function.signature.output_arg]
        for position, reference in enumerate(references):
            source = nodes.get(node_name(reference))
            if source is not None and source.input:
                references[position] = source.input[0]
        return references

    def _call(self, name: str, arguments: list[TensorValue]) -> tuple[list[TensorValue], GraphSize]:
        """Return the known properties of a function's outputs, and the size of the function.

        Args:
          name: the name of the function.
          arguments: the known properties of its arguments; missing ones are unknown.

        Raises:
          UnboundedSize: the function calls itself, or its calls are nested too deep.
        """
        names = self._program.arguments(name)
        if self._num_evaluated > _MAX_EVALUATED:
            arguments = []
        values = (*arguments, *[UNKNOWN] * len(names))[: len(names)]
        if (name, values) in self._calls:
            return self._calls[name, values]
        if name in self._stack:
            raise UnboundedSize(f"function {name} calls itself")
        if len(self._stack) >= MAX_DEPTH:
            raise UnboundedSize(_TOO_DEEP)
        function = self._program.functions[name]
        if name not in self._bodies:
            self._bodies[name] = in_execution_order(function.node_def)
        self._stack.append(name)
        arguments_by_name = dict(zip(names, values, strict=True))
        outputs, size = self._evaluate_nodes(name, self._bodies[name], arguments_by_name)
        self._stack.pop()
        result = [
            _output(outputs, function.ret[output.name]) for output in function.signature.output_arg
        ]
        self._calls[name, values] = result, size
        return result, size


def in_execution_order(nodes: Sequence[Any]) -> list[Any]:
    """Sort nodes so that each node comes after the nodes that compute its inputs.

    The loops of TensorFlow 1 are an exception, because they are cycles in the graph: the node
    NextIteration, which passes a value to the next iteration, can come after a node that uses its
    output.
    """
    by_name = {node.name: node for node in nodes}
    users: dict[str, list[str]] = {name: [] for name in by_name}
    num_inputs = dict.fromkeys(by_name, 0)
    for name, node in by_name.items():
        for source in {node_name(reference) for reference in node.input} & by_name.keys():
            if by_name[source].op != _BACK_EDGE:
                users[source].append(name)
                num_inputs[name] += 1
    ready = deque(name for name, count in num_inputs.items() if not count)
    ordered = []
    while ready:
        name = ready.popleft()
        ordered.append(by_name[name])
        for user in users[name]:
            num_inputs[user] -= 1
            if not num_inputs[user]:
                ready.append(user)
    ordered += [by_name[name] for name, count in num_inputs.items() if count]
    return ordered


def _output(outputs: Mapping[str, list[TensorValue]], reference: str) -> TensorValue:
    """Look up the known properties of a tensor by its name.

    Args:
      outputs: node name → the known properties of its outputs.
      reference: the name of the tensor: "y", "y:1" or, in a function, "y:output:1".
    """
    name, *rest = reference.split(":")
    index = int(rest[-1]) if rest and rest[-1].isdigit() else 0
    values = outputs.get(name, [])
    return values[index] if index < len(values) else UNKNOWN


def _output_value(node: Any, inputs: Sequence[TensorValue]) -> TensorValue:
    """Return the known properties of the first output of a node that calls no function."""
    is_constant = node.op in _ALLOCATING_SOURCES or (
        bool(inputs) and all(value.is_constant for value in inputs)
    )
    shape = size_rules.output_shape(node, inputs)
    shape, content = content_rules.output_content(node, inputs, shape)
    if shape is None:
        return UNKNOWN_CONSTANT if is_constant else UNKNOWN
    return TensorValue(_element_bytes(node), shape, content, is_constant)


def _element_bytes(node: Any) -> int:
    if node.op in size_rules.OBJECT_BYTES:
        return size_rules.OBJECT_BYTES[node.op]
    if node.op in _COMPARISONS:
        return element_bytes(_BOOLEAN)
    for name in _DTYPE_ATTRIBUTES:
        if attribute_value(node, name).type:
            return element_bytes(attribute_value(node, name).type)
    return element_bytes(_FLOAT)


def _tensor_protos(attributes: Mapping[str, Any]) -> Iterator[Any]:
    """Yield all TensorProtos in the attributes of a node.

    If an attribute names a function, the attributes that it passes to the function are included.
    """
    for attribute in attributes.values():
        kind = attribute.WhichOneof("value")
        if kind == "tensor":
            yield attribute.tensor
        elif kind == "func":
            yield from _tensor_protos(attribute.func.attr)
        elif kind == "list":
            yield from attribute.list.tensor
            for function in attribute.list.func:
                yield from _tensor_protos(function.attr)


def _num_bytes(allocation: Allocation) -> int:
    return allocation.num_bytes
