import tensorflow as tf

from tpuserve.graph import reachability

v1 = tf.compat.v1


def test_reachable_ops_exclude_variables_and_placeholders() -> None:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [], name="x")
        w = v1.get_variable("w", initializer=1.0, use_resource=True)
        read = w.read_value()
        with tf.control_dependencies([tf.no_op("before")]):
            total = tf.add(read, x, name="total")
        tf.constant(3.0, name="unneeded")
        reachable = reachability.reachable_ops([total.op])
    assert set(reachable) == {"total", "before", read.op.name, "Read/ReadVariableOp"}


def test_tensor_array_of_a_run_is_not_persistent_and_an_iterator_is() -> None:
    with tf.Graph().as_default():
        array, _ = tf.raw_ops.TensorArrayV3(size=3, dtype=tf.float32)
        iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(3))
        assert not reachability.is_persistent(array.op)
        assert reachability.is_persistent(iterator._iterator_resource.op)
        assert not reachability.is_persistent(iterator.get_next().op)
