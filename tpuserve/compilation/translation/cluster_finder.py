"""What XLA compiles of a signature: found in the lowered graph, with the shapes of one batch size.

Nothing runs and no variable is read: the shapes follow from those of the signature's inputs by
TensorFlow's own shape inference, from one call to the next.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.compilation.translation import abstract_tensor as arguments
from tpuserve.compilation.translation.abstract_tensor import AbstractTensor
from tpuserve.compilation.translation.function_graphs import FunctionLibrary
from tpuserve.errors import InvalidInput
from tpuserve.lowering.ir.outlining import MUST_COMPILE
from tpuserve.saved_model.metagraph import called_functions

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_LOOPS = ("While", "StatelessWhile")
_BATCH = "BatchFunction"


@dataclass(frozen=True)
class XlaCluster:
    """A function that XLA compiles as a whole, and what it is called with.

    Attributes:
      function: its name in the lowered graph.
      arguments: as far as they are known.
    """

    function: str
    arguments: tuple[AbstractTensor, ...]


class ClusterFinder:
    """Follows the tensors of a lowered graph through its calls.

    Attributes:
      pieces: those met so far, in the order in which they run.
      padded: what batch functions make of the rows, one sentence each.
    """

    def __init__(self, graph: GraphDef) -> None:
        """Follows nothing yet.

        Args:
          graph: a lowered graph with its function library.
        """
        self._nodes = graph.node
        self._functions = FunctionLibrary(graph)
        self.pieces: list[XlaCluster] = []
        self.padded: list[str] = []

    def trace(
        self, fed: Mapping[str, AbstractTensor], wanted: Sequence[str]
    ) -> list[AbstractTensor]:
        """What is known of the wanted tensors of the main graph, given those that are fed.

        Args:
          fed: tensor name, "x:0" → what is fed there.
          wanted: tensor names.

        Raises:
          InvalidInput: the graph refuses inputs of such shapes, or more rows than a batch takes.
        """
        return self._trace(self._nodes, fed, wanted, ())

    def _trace(
        self,
        nodes: Sequence[NodeDef],
        fed: Mapping[str, AbstractTensor],
        wanted: Sequence[str],
        kept: Sequence[str],
    ) -> list[AbstractTensor]:
        scope = _Scope(nodes, self._functions, fed)
        for node in scope.calls([*(_producer(each) for each in wanted), *kept]):
            given = scope.known([each for each in node.input if not each.startswith("^")])
            scope.set_outputs(node.name, self._outputs(node, given))
        return scope.known(wanted)

    def _outputs(self, node: NodeDef, given: Sequence[AbstractTensor]) -> list[AbstractTensor]:
        """What comes out of a node that calls functions."""
        if node.op in _CALLS:
            is_piece = node.attr[MUST_COMPILE].b
            return self._called(node.attr["f"].func.name, given, is_piece=is_piece)
        if node.op == _BATCH:
            return self._batched(node, given)
        names = list(dict.fromkeys(called_functions(node)))
        if node.op in _LOOPS:
            condition, body = node.attr["cond"].func.name, node.attr["body"].func.name
            self._called(condition, given)
            return arguments.merge(given, self._called(body, given))
        # The first input of a branching says which branch.
        results = [self._called(name, given[1:]) for name in names]
        found = results[0]
        for each in results[1:]:
            found = arguments.merge(found, each)
        return found

    def _batched(self, node: NodeDef, given: Sequence[AbstractTensor]) -> list[AbstractTensor]:
        count = len(node.attr["Tin"].list.type)
        rows = next((each.shape[0] for each in given[:count] if each.shape), None)
        if rows is None:
            return self._called(node.attr["f"].func.name, given)
        allowed = list(node.attr["allowed_batch_sizes"].list.i) or [node.attr["max_batch_size"].i]
        if rows > allowed[-1]:
            raise InvalidInput(
                f"a batch of {rows} rows does not fit batch function {node.name!r}, which takes "
                f"up to {allowed[-1]}. Ask for a smaller batch size."
            )
        # Without allowed sizes a batch is as large as it comes.
        if node.attr["allowed_batch_sizes"].list.i:
            rows_in_batch = next(each for each in allowed if each >= rows)
        else:
            rows_in_batch = rows
        if rows_in_batch != rows:
            self.padded.append(f"the model pads {rows} rows to {rows_in_batch}")
        padded = [each.with_rows(rows_in_batch) for each in given[:count]]
        results = self._called(node.attr["f"].func.name, [*padded, *given[count:]])
        return [each.with_rows(rows) for each in results]

    def _called(
        self, name: str, given: Sequence[AbstractTensor], *, is_piece: bool = False
    ) -> list[AbstractTensor]:
        body = self._functions.body(name)
        # Such as that of a look-up in a table, which only the program that made it knew.
        refined = [each.refined(shape) for each, shape in zip(given, body.shapes, strict=True)]
        if is_piece:
            self.pieces.append(XlaCluster(name, tuple(refined)))
        fed = dict(zip(body.inputs, refined, strict=True))
        return self._trace(body.nodes, fed, body.outputs, body.kept)


class _Scope:
    """The nodes of a graph or of one call, and what is known of tensors there."""

    def __init__(
        self,
        nodes: Sequence[NodeDef],
        functions: FunctionLibrary,
        fed: Mapping[str, AbstractTensor],
    ) -> None:
        self._nodes = {each.name: each for each in nodes}
        self._functions = functions
        self._fed = {_full(name): each for name, each in fed.items()}
        self._cut = {_producer(each) for each in self._fed}

    def calls(self, roots: Sequence[str]) -> Iterator[NodeDef]:
        """The nodes that call functions, each after those that it depends on."""
        for name in _in_order(self._nodes, roots, self._cut):
            if self._nodes[name].op in (*_CALLS, *_BRANCHES, *_LOOPS, _BATCH):
                yield self._nodes[name]

    def set_outputs(self, node: str, outputs: Sequence[AbstractTensor]) -> None:
        """What is known of a call's outputs."""
        self._cut.add(node)
        self._fed.update({f"{node}:{index}": each for index, each in enumerate(outputs)})

    def known(self, tensors: Sequence[str]) -> list[AbstractTensor]:
        """What is known of some tensors."""
        tensors = [_full(each) for each in tensors]
        wanted = [each for each in tensors if each not in self._fed]
        found = dict(self._fed)
        if wanted:
            found.update(zip(wanted, self._inferred(wanted), strict=True))
        return [found[each] for each in tensors]

    def _inferred(self, tensors: Sequence[str]) -> list[AbstractTensor]:
        graph_def = self._functions.new_graph_def()
        used: dict[str, AbstractTensor] = {}
        needed = _in_order(self._nodes, [_producer(each) for each in tensors], self._cut)
        included = [each for each in needed if each not in self._cut]
        for name in included:
            node = graph_def.node.add()
            node.CopyFrom(self._nodes[name])
            inputs = [each for each in node.input if not each.startswith("^")]
            del node.input[:]
            node.input.extend(inputs)
            used.update(
                {_full(each): self._fed[_full(each)] for each in inputs if _full(each) in self._fed}
            )
        with tf.Graph().as_default():
            fed = {name: arguments.make_placeholder(each) for name, each in used.items()}
            try:
                imported = tf.import_graph_def(
                    graph_def, input_map=fed, return_elements=list(tensors), name=""
                )
            except ValueError as error:
                raise InvalidInput(
                    f"the graph refuses inputs of such shapes: {error}. Ask for another batch size."
                ) from error
            return [
                self._through(fed, each) or arguments.describe_tensor(each) for each in imported
            ]

    def _through(self, fed: Mapping[str, Any], tensor: Any) -> AbstractTensor | None:
        """What was fed, where a tensor is but that."""
        while tensor.op.type == "Identity":
            tensor = tensor.op.inputs[0]
        for name, each in fed.items():
            if each is tensor:
                return self._fed[name]
        return None


def _in_order(nodes: Mapping[str, NodeDef], roots: Sequence[str], cut: "set[str]") -> list[str]:
    """The nodes that the roots depend on, up to where the graph is cut, producers first."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    pending = [(name, False) for name in reversed(roots)]
    while pending:
        name, is_done = pending.pop()
        if is_done:
            found[name] = None
            continue
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        pending.append((name, True))
        if name not in cut:
            pending.extend((_producer(each), False) for each in reversed(nodes[name].input))
    return list(found)


def _producer(tensor: str) -> str:
    return tensor.lstrip("^").partition(":")[0]


def _full(tensor: str) -> str:
    return tensor if ":" in tensor else f"{tensor}:0"
