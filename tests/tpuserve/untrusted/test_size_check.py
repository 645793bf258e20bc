"""Constants and functions that become far larger than the file are found without computing them."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from tpuserve.errors import ModelTooLarge
from tpuserve.untrusted.model_check import check_model

v1 = tf.compat.v1
PLACE = Path("/models/half/3")
LIMIT = 1 << 20
check = partial(check_model, directory=PLACE, forbid_unsafe_ops=False, max_constant_bytes=LIMIT)


def graph_of(build: Any, *shape: int | None) -> meta_graph_pb2.MetaGraphDef:
    """Return a metagraph with a signature x → build(x); x is a float32 placeholder of `shape`."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, shape, "x")
        y = build(x)
    meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph.as_graph_def())
    signature = meta_graph.signature_def["serve"]
    signature.inputs["x"].name = "x:0"
    signature.outputs["y"].name = y.name
    return meta_graph


def number(value: float, dtype: Any = tf.int32) -> Any:
    return tf.constant(value, dtype)


# A tensor of this many elements, 2^20, has 4 MiB: four times the limit.
N = LIMIT
LARGE = {
    "fill": lambda x: x + tf.fill([N], 1.0),
    "random": lambda x: x + tf.random.uniform([N // 1024, 1024]),
    "stateless": lambda x: x + tf.random.stateless_normal([N], seed=[1, 2]),
    "range": lambda x: x + tf.cast(tf.range(N), tf.float32),
    "linspace": lambda x: x + tf.raw_ops.LinSpace(start=0.0, stop=1.0, num=N),
    "tile": lambda x: x + tf.tile([1.0, 2.0], [N]),
    "broadcast": lambda x: x + tf.broadcast_to(1.0, [N]),
    "broadcast of operands": lambda x: x + tf.range(1024.0)[:, None] * tf.range(1024.0),
    "outer product": lambda x: x + tf.matmul(tf.ones([1024, 1]), tf.ones([1, 1024])),
    "einsum": lambda x: x + tf.einsum("i,j->ij", tf.range(1024.0), tf.range(1024.0)),
    "eye": lambda x: x + tf.eye(1024),
    "one hot": lambda x: x + tf.one_hot([1], N),
    "pad": lambda x: x + tf.pad([1.0], [[0, N]]),
    "scatter": lambda x: x + tf.scatter_nd([[1]], [1.0], [N]),
    "segments": lambda x: x + tf.math.unsorted_segment_sum([1.0], [0], N),
    "stitch": lambda x: x + tf.dynamic_stitch([[N]], [[1.0]]),
    "bins": lambda x: x + tf.raw_ops.DenseBincount(input=[1], size=N, weights=[1.0]),
    "list": lambda x: (
        x
        + tf.cast(
            tf.raw_ops.TensorListLength(
                input_handle=tf.raw_ops.TensorListReserve(
                    element_shape=tf.constant([], tf.int32),
                    num_elements=number(N),
                    element_dtype=tf.float32,
                )
            ),
            tf.float32,
        )
    ),
    "array": lambda x: (
        x + tf.cast(tf.raw_ops.TensorArrayV3(size=number(N), dtype=tf.float32).flow, tf.float32)
    ),
    "parts": lambda x: x + tf.concat([tf.fill([N // 8], 1.0)] * 8, 0),
    "many": lambda x: x + tf.add_n([tf.fill([N // 8], float(i)) for i in range(9)]),
    "computed size": lambda x: x + tf.fill(tf.stack([number(1024) * 256 * 4]), 1.0),
    "size of a shape": lambda x: x + tf.fill([tf.size(tf.ones([1024, 64])) * 16], 1.0),
    "chosen size": lambda x: x + tf.fill([tf.where(number(1) < 2, number(N), 1)], 1.0),
    "sliced size": lambda x: x + tf.fill(tf.constant([1, N, 1])[1:2], 1.0),
    "reduced size": lambda x: x + tf.fill([tf.reduce_prod(tf.constant([1024, 1024]))], 1.0),
    # Clients choose the content of these tensors, while the graph fixes their size.
    "one hot of the client": lambda x: tf.one_hot(tf.cast(x, tf.int32), N),
    "one hot of an unknown rank": lambda x: tf.one_hot(
        tf.cast(v1.placeholder_with_default(x, None), tf.int32), N
    ),
    "tile of the client": lambda x: tf.tile(x, [N]),
    "fill of the client": lambda x: tf.fill([N], x[0]),
}


@pytest.mark.parametrize("build", LARGE.values(), ids=LARGE)
def test_tensor_whose_size_the_graph_fixes_is_refused(build: Any) -> None:
    with pytest.raises(ModelTooLarge, match="bytes of constants, of which node"):
        check([graph_of(build, None)])


SMALL = {
    "mask": lambda x: x * tf.linalg.band_part(tf.ones([256, 256]), -1, 0),
    "batch": lambda x: tf.fill([tf.shape(x)[0], 1024], 1.0),
    "variable": lambda x: x + tf.reduce_sum(v1.get_variable("v", [N], use_resource=True)),
    "positions": lambda x: x + tf.one_hot(tf.range(256), 256),
}


@pytest.mark.parametrize("build", SMALL.values(), ids=SMALL)
def test_what_models_do_is_accepted(build: Any) -> None:
    check([graph_of(build, None, 256)])


def constant_of(count: int, listed: int, dtype: int = 1) -> meta_graph_pb2.MetaGraphDef:
    """Return a metagraph with a constant of `count` elements, of which the file lists `listed`."""
    meta_graph = graph_of(lambda x: x + tf.constant([1.0, 2.0]), None)
    (node,) = [node for node in meta_graph.graph_def.node if node.op == "Const"]
    node.attr.clear()
    node.attr["dtype"].type = dtype
    tensor = node.attr["value"].tensor
    tensor.dtype = dtype
    tensor.tensor_shape.dim.add(size=count)
    tensor.float_val[:] = [0.5] * listed
    return meta_graph


def test_constant_that_lists_one_element_counts_by_its_shape() -> None:
    text = (
        r"/models/half/3 asks for 8,999,999,\d{3} bytes of constants, of which "
        r"node Const \(Const\) asks for 9,000,000,000; the limit is 1,048,576 bytes\. Keep large "
        r"values in variables, or raise --max_constant_bytes if you trust the model\.$"
    )
    with pytest.raises(ModelTooLarge, match=text):
        check([constant_of(2_250_000_000, 1)])


def test_bytes_in_the_file_are_free() -> None:
    check([constant_of(N, N)])
    check([constant_of(N // 4, 1)])
    with pytest.raises(ModelTooLarge):
        check([constant_of(N, N // 2)])


def test_tensors_in_variants_count() -> None:
    meta_graph = constant_of(1, 0, dtype=21)
    (node,) = [node for node in meta_graph.graph_def.node if node.op == "Const"]
    inner = node.attr["value"].tensor.variant_val.add().tensors.add(dtype=1)
    inner.tensor_shape.dim.add(size=N)
    with pytest.raises(ModelTooLarge):
        check([meta_graph])


def test_constant_that_no_run_reaches_does_not_count() -> None:
    def build(x: Any) -> Any:
        tf.fill([N], 1.0)
        return x + 1

    check([graph_of(build, None)])


def test_constant_counts_that_the_import_computes_and_no_run_reaches() -> None:
    """TensorFlow computes the shapes of all nodes of the graph at import."""

    def build(x: Any) -> Any:
        size = tf.slice(tf.fill(tf.constant([N]), 2), [0], [1])
        with v1.colocate_with(tf.reshape(tf.fill([2], 1.0), size).op):
            return x + 1

    with pytest.raises(ModelTooLarge, match="of which node Fill"):
        check([graph_of(build, None)])


@pytest.mark.parametrize("name", ["ParseTensor", "DecodeCompressed", "DecodePng", "DecodeJpeg"])
def test_constant_that_is_decoded_is_refused(name: str) -> None:
    meta_graph = graph_of(lambda x: x + tf.strings.to_number(tf.strings.upper("7")))
    (node,) = [node for node in meta_graph.graph_def.node if node.op == "StringUpper"]
    node.op = name
    with pytest.raises(ModelTooLarge, match=rf"\({name}\) decodes a constant, which may have any"):
        check([meta_graph])
    node.input[0] = "x"
    check([meta_graph])


def test_no_limit_is_no_check() -> None:
    check_model(
        [constant_of(2_250_000_000, 1)], PLACE, forbid_unsafe_ops=True, max_constant_bytes=0
    )


@tf.function(input_signature=[tf.TensorSpec([], tf.int32), tf.TensorSpec([None], tf.float32)])
def fill(size: Any, x: Any) -> Any:
    return x + tf.fill([size], 1.0)


def test_size_is_followed_into_functions_and_loops() -> None:
    with pytest.raises(ModelTooLarge, match=r"node Fill \(Fill\) in function __inference_fill"):
        check([graph_of(lambda x: fill(number(N), x), None)])
    check([graph_of(lambda x: fill(number(100), x), None)])

    def loop(x: Any) -> Any:
        return tf.raw_ops.While(
            input=[number(0), number(N), x],
            cond=tf.function(lambda i, n, x: i < 3).get_concrete_function(
                *[tf.TensorSpec([], tf.int32)] * 2, tf.TensorSpec([], tf.float32)
            ),
            body=tf.function(
                lambda i, n, x: (i + 1, n, x + tf.reduce_sum(tf.fill([n], 1.0)))
            ).get_concrete_function(
                *[tf.TensorSpec([], tf.int32)] * 2, tf.TensorSpec([], tf.float32)
            ),
        )[2]

    with pytest.raises(ModelTooLarge, match="node Fill"):
        check([graph_of(loop)])


def test_constant_counts_once_for_each_call_of_its_function() -> None:
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def eighth(x: Any) -> Any:
        return x + tf.reduce_sum(tf.fill([N // 4 // 8], x) * tf.range(float(N // 4 // 8)))

    def build(calls: int) -> meta_graph_pb2.MetaGraphDef:
        return graph_of(lambda x: tf.add_n([eighth(x) for _ in range(calls)]))

    check([build(7)])
    with pytest.raises(ModelTooLarge, match="asks for 131,0"):
        check([build(9)])


def nested_functions(depth: int, calls: int) -> meta_graph_pb2.MetaGraphDef:
    """Return a metagraph of `depth` nested functions: each calls the next one `calls` times."""
    meta_graph = graph_of(lambda x: tf.identity(x))
    (y,) = [node for node in meta_graph.graph_def.node if node.op == "Identity"]
    y.op = "PartitionedCall"
    y.attr["f"].func.name = "f0"
    for level in range(depth):
        function = meta_graph.graph_def.library.function.add()
        function.signature.name = f"f{level}"
        function.signature.input_arg.add(name="a", type=1)
        function.signature.output_arg.add(name="o", type=1)
        function.ret["o"] = "a"
        for position in range(calls):
            node = function.node_def.add(name=f"n{position}", op="PartitionedCall", input=["a"])
            node.attr["f"].func.name = f"f{level + 1}"
    return meta_graph


def test_functions_that_double_at_each_level_are_refused() -> None:
    check([nested_functions(20, 2)])
    with pytest.raises(ModelTooLarge, match=r"become [\d,]+ nodes when they are inlined, and at"):
        check([nested_functions(90, 2)])


@pytest.mark.slow
def test_functions_that_are_nested_deeply_are_refused() -> None:
    check([nested_functions(99, 1)])
    for depth in (102, 100_000):
        with pytest.raises(ModelTooLarge, match="nested more than 100 deep. Change the model"):
            check([nested_functions(depth, 1)])


def test_depth_counts_also_where_functions_are_known_from_another_call() -> None:
    meta_graph = nested_functions(150, 1)
    for level in (100, 50):
        node = meta_graph.graph_def.node.add(name=f"first{level}", op="PartitionedCall")
        node.input[:] = ["x"]
        node.attr["f"].func.name = f"f{level}"
        y = next(node for node in meta_graph.graph_def.node if node.op == "PartitionedCall")
        y.input.append(f"^first{level}")
    with pytest.raises(ModelTooLarge, match="nested more than 100 deep"):
        check([meta_graph])


def test_functions_that_call_themselves_are_refused() -> None:
    meta_graph = nested_functions(2, 1)
    meta_graph.graph_def.library.function[1].node_def[0].attr["f"].func.name = "f0"
    with pytest.raises(ModelTooLarge, match="function f0 calls itself"):
        check([meta_graph])


def test_functions_called_with_ever_other_arguments_are_evaluated_in_bounded_time() -> None:
    """Each of the 10^6 paths through the calls passes another size to the innermost function."""
    meta_graph = nested_functions(6, 10)
    for function in meta_graph.graph_def.library.function:
        for position, node in enumerate([*function.node_def]):
            constant = function.node_def.add(name=f"c{position}", op="Const")
            constant.attr["value"].tensor.dtype = 1
            constant.attr["value"].tensor.float_val.append(position)
            add = function.node_def.add(name=f"a{position}", op="AddV2")
            add.input[:] = ["a", f"c{position}:output:0"]
            node.input[0] = f"a{position}:z:0"
    meta_graph.graph_def.node[0].op = "Const"
    meta_graph.graph_def.node[0].attr["value"].tensor.dtype = 1
    meta_graph.signature_def["serve"].inputs.clear()
    check([meta_graph], max_constant_bytes=1 << 40)


def test_a_node_with_many_tensors_is_sized_in_linear_time() -> None:
    """An attribute lists so many tensors that the square of their number would take minutes."""
    meta_graph = graph_of(lambda x: x + 1, None)
    tensors = meta_graph.graph_def.node[-1].attr["list"].list.tensor
    for _ in range(30_000):
        tensors.add()
    check([meta_graph])


@pytest.mark.parametrize("op", ["Pack", "ConcatV2"])
def test_a_node_that_joins_many_constants_is_sized_in_linear_time(op: str) -> None:
    """The node has so many inputs that the square of their number would take minutes."""
    meta_graph = graph_of(lambda x: tf.fill(tf.stack([number(1)]), x[0]), None)
    (pack,) = [node for node in meta_graph.graph_def.node if node.op == "Pack"]
    pack.op = op
    pack.input[:] = [pack.input[0]] * 60_001
    check([meta_graph])
    with pytest.raises(ModelTooLarge):
        check([meta_graph], max_constant_bytes=1 << 17)


def test_damaged_graphs_are_left_to_the_loader() -> None:
    for op in ("Fill", "Tile", "Pad", "Range", "MatMul", "Reshape", "ConcatV2", "Pack", "Gather"):
        meta_graph = meta_graph_pb2.MetaGraphDef()
        meta_graph.graph_def.node.add(name="y", op=op)
        meta_graph.graph_def.node.add(name="z", op=op, input=["y", "absent:7", "z"])
        meta_graph.signature_def["serve"].outputs["y"].name = "z:0"
        check([meta_graph])


def test_check_adds_no_attributes_to_nodes_that_leave_them_at_their_defaults() -> None:
    meta_graph = graph_of(lambda x: x[tf.range(2)[1] :], None, 1)
    for node in meta_graph.graph_def.node:
        for name in ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "axis"):
            node.attr.pop(name, None)
    as_read = meta_graph.SerializeToString(deterministic=True)
    check([meta_graph])
    assert meta_graph.SerializeToString(deterministic=True) == as_read
