"""A model whose runs last as long as its input says."""

from pathlib import Path
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def export(directory: Path, has_functional_loops: bool) -> None:
    """Export x, n → y = sum(x) counted up to n, in steps of 1 that a variable counts too."""
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        (v1.enable_control_flow_v2 if has_functional_loops else v1.disable_control_flow_v2)()
        try:
            steps = v1.get_variable(
                "steps", [], tf.int64, v1.zeros_initializer(), use_resource=True
            )
            x = v1.placeholder(tf.float32, [None], name="x")
            n = v1.placeholder(tf.float32, [], name="n")

            def count(y: Any) -> Any:
                with tf.control_dependencies([steps.assign_add(1)]):
                    return tf.minimum(y + 1, 1e20)

            y = tf.while_loop(lambda y: y < n, count, [tf.reduce_sum(x)], parallel_iterations=1)
            y, more = tf.identity(y), tf.identity(tf.reduce_sum(tf.boolean_mask(x, x > 0)))
        finally:
            v1.enable_control_flow_v2()
        session.run(v1.global_variables_initializer())
        signature = v1.saved_model.predict_signature_def
        builder = v1.saved_model.Builder(str(directory))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                "serving_default": signature({"x": x, "n": n}, {"y": y, "more": more}),
                "steps": signature({"x": x}, {"steps": tf.identity(steps.read_value())}),
            },
        )
        builder.save()
