"""Copies operations of a training step into the body of a loop or function."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

_SEED_DISTANCE = 0x5EED


class StepCopier:
    """Copies operations from a graph into another graph, such as the graph of a loop's body.

    The graph to copy from is the default graph at the time when the copier is created.

    Attributes:
      library: the functions of the graph to copy from: name → FunctionDef.
    """

    def __init__(self) -> None:
        self._graph = tf.compat.v1.get_default_graph()
        self._whole = self._graph.as_graph_def()
        self.library = {
            function.signature.name: function for function in self._whole.library.function
        }

    def copy(
        self,
        operations: Mapping[str, Any],
        tensors: Mapping[str, Any],
        results: Sequence[str],
        *,
        name: str = "step",
        rewrite: Callable[[Any], None] | None = None,
    ) -> list[Any]:
        """Copy operations of the original graph into the default graph, a function's graph.

        The copies keep control inputs among themselves and drop those from other operations.

        Args:
          tensors: name of a tensor that the operations take from other operations → the tensor that
            the copies take instead.
        """
        graph = tf.compat.v1.get_default_graph()
        definition = self._definition(operations)
        if rewrite is not None:
            rewrite(definition)
        copies: list[Any] = tf.graph_util.import_graph_def(
            definition,
            input_map={
                tensor.name: graph.capture(tensors.get(tensor.name, tensor))
                for tensor in outside_inputs(operations)
            },
            return_elements=list(results),
            name=name,
        )
        return copies

    def _definition(self, operations: Mapping[str, Any]) -> Any:
        definition = tf.compat.v1.GraphDef(
            versions=self._whole.versions, library=self._whole.library
        )
        for node in self._whole.node:
            if node.name not in operations:
                continue
            copy = definition.node.add()
            copy.CopyFrom(node)
            # Remove the colocation attribute: it names operations, such as variables, that are not
            # copied.
            copy.attr.pop("_class", None)
            _reseed(copy)
            inputs = [
                reference for reference in node.input if _is_data_or_in(reference, operations)
            ]
            del copy.input[:]
            copy.input.extend(inputs)
        return definition


def outside_inputs(operations: Mapping[str, Any]) -> list[Any]:
    """Return the tensors that a set of operations takes from other operations, each tensor once."""
    tensors: Iterable[Any] = (
        tensor for operation in operations.values() for tensor in operation.inputs
    )
    outside = {tensor.name: tensor for tensor in tensors if tensor.op.name not in operations}
    return list(outside.values())


def _reseed(node: Any) -> None:
    # Give the copy of a random op another seed than the original op. With the same seed, both would
    # draw the same random numbers, although they belong to different training steps.
    seeds = [node.attr[name].i for name in ("seed", "seed2") if name in node.attr]
    if len(seeds) == 2 and any(seeds):
        node.attr["seed2"].i = (seeds[1] + _SEED_DISTANCE) % 2**31


def _is_data_or_in(reference: str, operations: Mapping[str, Any]) -> bool:
    return not reference.startswith("^") or reference[1:] in operations
