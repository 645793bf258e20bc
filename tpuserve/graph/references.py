"""Reads and replaces references to nodes and their outputs, in NodeDefs and SignatureDefs.

In a graph, a data input is "node" or "node:index". In the body of a function, it is
"node:output:index" or the name of an argument.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def attribute_value(node: Any, name: str) -> Any:
    """Return an attribute of a node, or an empty AttrValue if the node does not have the attribute.

    Protobuf adds an empty attribute to the node if `node.attr[name]` is read and does not exist.
    """
    return node.attr[name] if name in node.attr else type(node)().attr[name]


def node_name(reference: str) -> str:
    """Return the name of the node in the name of a tensor or in an input, such as "y:0" or "^y"."""
    return reference.removeprefix("^").partition(":")[0]


def tensor_name(reference: str) -> str:
    """Return the full name of the tensor that a data input refers to: "y" becomes "y:0"."""
    name, _, index = reference.partition(":")
    return f"{name}:{index or 0}"


def data_inputs(node: Any) -> list[str]:
    """Return the inputs of a NodeDef without its control inputs, in order."""
    return [reference for reference in node.input if not reference.startswith("^")]


def control_inputs(node: Any) -> list[str]:
    """Return the control inputs of a NodeDef, each with its "^"."""
    return [reference for reference in node.input if reference.startswith("^")]


def replace_data_inputs(node: Any, inputs: Iterable[str]) -> None:
    """Replace the data inputs of a NodeDef in place; its control inputs follow the new inputs."""
    node.input[:] = [*inputs, *control_inputs(node)]


def find_tensors(info: Any) -> Iterator[str]:
    """Yield the tensor names in a TensorInfo; a sparse or composite tensor has several."""
    kind = info.WhichOneof("encoding")
    if kind == "coo_sparse":
        sparse = info.coo_sparse
        yield sparse.values_tensor_name
        yield sparse.indices_tensor_name
        yield sparse.dense_shape_tensor_name
    elif kind == "composite_tensor":
        for component in info.composite_tensor.components:
            yield from find_tensors(component)
    else:
        yield info.name


def rename_tensors(info: Any, rename: Callable[[str], str]) -> None:
    """Replace each tensor name in a TensorInfo by the result of `rename` for it, in place."""
    kind = info.WhichOneof("encoding")
    if kind == "coo_sparse":
        for field in ("values", "indices", "dense_shape"):
            name = f"{field}_tensor_name"
            setattr(info.coo_sparse, name, rename(getattr(info.coo_sparse, name)))
    elif kind == "composite_tensor":
        for component in info.composite_tensor.components:
            rename_tensors(component, rename)
    else:
        info.name = rename(info.name)
