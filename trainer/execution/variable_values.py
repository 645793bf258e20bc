"""A tf.Graph in which the name of a variable's tensor stands for the variable's value."""

from typing import Any

import tensorflow as tf


class VariableValueGraph(tf.Graph):
    """A graph whose sessions fetch the value of a variable by the name of the variable.

    A program of TensorFlow 1 fetches "w:0" for the value of w. Of a resource variable, "w:0" is the
    handle, which no program can use.
    """

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Any:
        """Return the tensor or operation that an object or a name refers to."""
        element = super().as_graph_element(obj, allow_tensor, allow_operation)
        if not self.finalized or not tf.is_tensor(element) or element.op.type != "VarHandleOp":
            return element
        name = f"{element.op.name}/Read/ReadVariableOp"
        reads = (operation for operation in element.consumers() if operation.name == name)
        return next((read.outputs[0] for read in reads), element)
