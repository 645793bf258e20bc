"""Builds the training step as the body of a loop, and lets XLA compile a part of it for the CPU."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef

from tpuserve.errors import UncompilableStep, UnsupportedOnTpu
from tpuserve.lowering import tpu_kernels
from tpuserve.stablehlo.abstract_tensor import describe_tensor
from tpuserve.stablehlo.cluster_finder import XlaCluster
from tpuserve.stablehlo.translator import StableHloTranslator
from tpuserve.stablehlo.xla_errors import LineOf
from trainer.execution import step_partition
from trainer.execution.held_variables import HeldVariables
from trainer.execution.step_copy import StepCopier, outside_inputs
from trainer.tensorflow_internals import get_private_attribute

_OP = "MaxPoolGrad"


def replace_max_pool_gradients(definition: Any, shapes: dict[str, Any]) -> None:
    """Replace each MaxPoolGrad node whose windows do not overlap by a call of a faster function.

    Args:
      shapes: name of a node → the tf.TensorShape of the pooling's input. A node without a fully
        known shape is not changed.
    """
    for node in definition.node:
        shape = shapes.get(node.name)
        if node.op != _OP or shape is None or not shape.is_fully_defined():
            continue
        window = tuple(node.attr["ksize"].list.i)
        if not _can_replace(node, window, shape.as_list()):
            continue
        function = _make_function(window[1], window[2], tf.as_dtype(node.attr["T"].type), shape)
        if all(
            function.signature.name != library_function.signature.name
            for library_function in definition.library.function
        ):
            definition.library.function.append(function)
        _call(node, function)


def _can_replace(node: Any, window: tuple[int, ...], shape: list[int]) -> bool:
    return (
        node.attr["data_format"].s in (b"", b"NHWC")
        and window[0] == window[3] == 1
        and window == tuple(node.attr["strides"].list.i)
        # Accept only inputs whose height and width are multiples of the window's height and width.
        # Then the padding does not matter: SAME adds no pixel, and VALID drops no pixel.
        and shape[1] % window[1] == 0
        and shape[2] % window[2] == 0
    )


def _make_function(height: int, width: int, dtype: Any, shape: Any) -> Any:
    """Return a FunctionDef that computes the gradient of max pooling by comparisons."""
    rows, columns = shape[1] // height, shape[2] // width
    pooled = tf.TensorShape([shape[0], rows, columns, shape[3]])

    def compute_gradient(inputs: Any, outputs: Any, gradient: Any) -> Any:
        windows = tf.reshape(inputs, [shape[0], rows, height, columns, width, shape[3]])
        is_taken = tf.zeros(pooled, tf.bool)
        zeros = tf.zeros(pooled, dtype)
        gradients = []
        for row in range(height):
            for column in range(width):
                # Give the gradient to the first of several equal maxima, as TensorFlow's kernel
                # does.
                is_maximum = tf.equal(windows[:, :, row, :, column, :], outputs)
                is_first = tf.logical_and(is_maximum, tf.logical_not(is_taken))
                gradients.append(tf.where(is_first, gradient, zeros))
                is_taken = tf.logical_or(is_taken, is_maximum)
        stacked = tf.reshape(
            tf.stack(gradients, axis=3), [shape[0], rows, columns, height, width, shape[3]]
        )
        return tf.reshape(tf.transpose(stacked, [0, 1, 3, 2, 4, 5]), shape)

    specs = [tf.TensorSpec(tensor_shape, dtype) for tensor_shape in (shape, pooled, pooled)]
    function: Any = tf.function(compute_gradient, autograph=False)
    return function.get_concrete_function(*specs).function_def


def _call(node: Any, function: Any) -> None:
    dtype = node.attr["T"].type
    node.op = "PartitionedCall"
    node.attr.clear()
    node.attr["f"].func.name = function.signature.name
    node.attr["Tin"].list.type.extend([dtype] * 3)
    node.attr["Tout"].list.type.extend([dtype])
    for name in ("config", "config_proto", "executor_type"):
        node.attr[name].s = b""


# The name scope of the op that calls the part of the step that XLA compiles. TensorFlow's errors
# about this op contain the scope, so `CompiledStep.is_failure_of_xla` can recognize them.
_SCOPE = "tpuserve_xla_step"
# The first words of the heading lines that TensorFlow puts before the text of an error.
# `CompiledStep.describe_failure` skips these lines.
_HEADINGS = ("Graph execution error", "Detected at node")


class CompiledStep:
    """A training step with an XLA part: ops that run either in XLA or in TensorFlow's kernels.

    The other ops of the step always run in TensorFlow's kernels. They draw random numbers, read the
    next batch or print messages.

    Attributes:
      uses_xla: a bool placeholder [], False by default. With True, the XLA part runs in XLA.
      xla_steps: an int32 placeholder []. At most the first `xla_steps` steps of a session.run use
        XLA; by default there is no such limit.
      unknown_sizes: the sizes that the inputs of the XLA part had in the last step, int32 [n]: one
        size for each dimension of an input without a static shape.
      compiled_sizes: an int32 placeholder [n], the value of `unknown_sizes` for which XLA compiles
        the XLA part.

    Args:
      line_of: takes "node@function", the name of a node and of the function that contains the
        node; returns the line of user code that created the node. For error messages.
    """

    def __init__(self, step: step_partition.Operations, line_of: LineOf) -> None:
        self._line_of = line_of
        self._copier = StepCopier()
        handles = [variable.handle.op.name for variable in tf.compat.v1.trainable_variables()]
        self._parts = step_partition.partition_step(step, self._copier.library, handles)
        self._inputs = [
            tensor for tensor in outside_inputs(self._parts.compiled) if tensor.dtype != tf.resource
        ]
        self._function: Any = None
        # Python's id of a tensor in the copy of the step → the name of the original tensor. `check`
        # uses these names to find the shapes of the XLA part's inputs.
        self._originals: dict[int, str] = {}
        self.uses_xla = tf.compat.v1.placeholder_with_default(False, [], name="uses_xla")
        self.xla_steps = tf.compat.v1.placeholder_with_default(tf.int32.max, [], name="xla_steps")
        self.unknown_sizes = tf.zeros([0], tf.int32)
        if not self.obstacle:
            self.unknown_sizes = _find_sizes(_with_unknown_sizes(self._inputs))
        self.compiled_sizes = tf.compat.v1.placeholder_with_default(
            tf.fill(self.unknown_sizes.shape, -1), self.unknown_sizes.shape, name="compiled_sizes"
        )

    @property
    def obstacle(self) -> str:
        """Why XLA cannot compile the step as a whole; empty if no reason is known."""
        operation = self._parts.obstacle
        if operation is None:
            for tensor in self._inputs:
                if tensor.shape.rank is None:
                    return f"the number of dimensions of {tensor.name!r} is unknown"
            return "" if self._parts.compiled else "XLA can compile no op of the step"
        line = self._line_of(f"{operation.name}@")
        created = f", created at {line}" if line else ""
        return (
            f"XLA cannot run {operation.type} ({operation.name!r}{created}), which depends on "
            f"trainable variables and on which other ops depend"
        )

    @property
    def num_unknown_sizes(self) -> int:
        """The length of `unknown_sizes`."""
        return int(self.unknown_sizes.shape[0])

    @property
    def shares_ops(self) -> bool:
        """Whether one loop runs all steps and decides in each step whether to use XLA.

        One loop is needed if the step draws random numbers, or if the XLA part has inputs of
        unknown sizes.
        """
        return self.num_unknown_sizes > 0 or any(
            step_partition.draws_random_numbers(operation)
            for operation in self._parts.before.values()
        )

    @property
    def can_hold_variables(self) -> bool:
        """Whether `HeldVariables` can protect the values of the step's variables if XLA fails."""
        parts = (self._parts.before, self._parts.compiled, self._parts.after)
        return HeldVariables.can_hold([variable for part in parts for variable in part.values()])

    def find_variables(self) -> list[Any]:
        """Return the handles of the variables that the XLA part reads or changes."""
        handles = {
            tensor.op.name: tensor
            for tensor in outside_inputs(self._parts.compiled)
            if tensor.op.type == "VarHandleOp"
        }
        return list(handles.values())

    def build_step(self, number: Any, *, can_choose: bool) -> Any:
        """Build the ops of one step in the default graph, which is the body of a loop.

        Args:
          number: the number of the step in its session.run, from 0, int32 [].
          can_choose: whether the placeholders `uses_xla`, `xla_steps` and `compiled_sizes` decide
            at run time whether the ops that XLA can compile run in XLA.
        """
        graph = tf.compat.v1.get_default_graph()
        before, compiled, after = self._parts.before, self._parts.compiled, self._parts.after
        from_before = [
            tensor
            for tensor in (*outside_inputs(compiled), *outside_inputs(after))
            if tensor.op.name in before
        ]
        names = list(dict.fromkeys(tensor.name for tensor in from_before))
        copies = self._copier.copy(before, {}, [*names, *before])
        tensors = dict(zip(names, copies, strict=False))
        self._originals = {id(copy): name for name, copy in tensors.items()}
        results = [tensor for tensor in outside_inputs(after) if tensor.op.name in compiled]
        with tf.control_dependencies(copies[len(names) :]):
            uses_xla = tf.identity(graph.capture(self.uses_xla))

        def compute() -> list[Any]:
            return self._compute(tensors, results, is_xla=False)

        function = tf.function(
            lambda: self._compute(tensors, results, is_xla=True),
            jit_compile=True,
            autograph=False,
        )
        self._function = function.get_concrete_function()

        def call_in_xla() -> Any:
            with tf.name_scope(_SCOPE):
                return function()

        if can_choose:
            uses_xla = tf.logical_and(uses_xla, number < graph.capture(self.xla_steps))
            sizes = _find_sizes(
                tensors.get(tensor.name, tensor) for tensor in _with_unknown_sizes(self._inputs)
            )
            expected = graph.capture(self.compiled_sizes)
            uses_xla = tf.logical_and(uses_xla, tf.reduce_all(tf.equal(sizes, expected)))
            computed = tf.cond(uses_xla, call_in_xla, compute)
        else:
            with tf.control_dependencies([uses_xla]):
                computed = call_in_xla()
        done = computed[-1].op
        with tf.control_dependencies([done]):
            tensors = {name: tf.identity(tensor) for name, tensor in tensors.items()}
        tensors.update(zip((tensor.name for tensor in results), computed, strict=False))
        last = self._copier.copy(after, tensors, list(after))
        for operation in last:
            if operation.type != "Const":
                get_private_attribute(operation, "_add_control_input")(done)
        return tf.group(done, *last)

    def check(self, sizes: Sequence[int]) -> None:
        """Translate the XLA part to StableHLO, in order to check that XLA can compile it."""
        remaining = list(sizes)
        shapes = {}
        for tensor in _with_unknown_sizes(self._inputs):
            rank = tensor.shape.rank
            shapes[tensor.name], remaining = tuple(remaining[:rank]), remaining[rank:]
        definition = self._function.function_def
        graph = GraphDef(library=self._function.graph.as_graph_def().library)
        graph.library.function.append(definition)
        arguments = [
            describe_tensor(tensor).refine(shapes.get(self._originals.get(id(tensor), "")))
            for tensor in self._function.captured_inputs
        ]
        cluster = XlaCluster(definition.signature.name, tuple(arguments))
        try:
            StableHloTranslator(graph, self._line_of).translate(cluster)
        except UnsupportedOnTpu as error:
            raise UncompilableStep(
                f"the training step cannot be compiled: {error}. Change the op, or leave "
                f"compile_step out."
            ) from error

    @staticmethod
    def is_failure_of_xla(error: Exception) -> bool:
        """Return whether a session.run failed because XLA could not compile or run a step."""
        return isinstance(error, tf.errors.OpError) and _SCOPE in str(error)

    @staticmethod
    def describe_failure(error: Exception) -> str:
        """Return the line of an XLA error's text that describes the failure, without a period."""
        lines = (line.strip().rstrip(".") for line in str(error).splitlines())
        return next(line for line in lines if line and not line.startswith(_HEADINGS))

    def _compute(self, tensors: Any, results: Sequence[Any], *, is_xla: bool) -> list[Any]:
        """Copy the XLA part of the step into the default graph, which is a function's graph."""
        compiled = self._parts.compiled
        names = [tensor.name for tensor in results]
        copies = self._copier.copy(
            compiled,
            tensors,
            [*names, *compiled],
            name="",
            rewrite=self._replace_ops if is_xla else None,
        )
        with tf.control_dependencies(copies[len(names) :]):
            outputs = [tf.identity(tensor) for tensor in copies[: len(names)]]
            return [*outputs, tf.identity(tf.constant(True))]

    def _replace_ops(self, definition: Any) -> None:
        shapes = {
            name: operation.inputs[0].shape
            for name, operation in self._parts.compiled.items()
            if operation.inputs
        }
        replace_max_pool_gradients(definition, shapes)
        tpu_kernels.replace_in_graph(definition)


def _with_unknown_sizes(tensors: Iterable[Any]) -> list[Any]:
    return [tensor for tensor in tensors if not tensor.shape.is_fully_defined()]


def _find_sizes(tensors: Iterable[Any]) -> Any:
    """Return an int32 tensor [n] with the sizes of all dimensions of the given tensors."""
    sizes = [tf.shape(tensor) for tensor in tensors]
    return tf.concat(sizes, 0) if sizes else tf.zeros([0], tf.int32)
