"""A model whose input decides how many iterations, and so how long, a run takes."""

from pathlib import Path
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def export(directory: Path, has_functional_loops: bool) -> None:
    """Export a model that adds 1 to sum(x) until the result is at least n.

    The signature "serving_default" maps x (float32 [?]) and n (float32 []) to y, the result, and to
    more, the sum of the positive elements of x. The signature "steps" returns a variable that
    counts the additions of all runs.

    Args:
      directory: the directory of the SavedModel.
      has_functional_loops: whether the loop is a While op of TensorFlow 2.
    """
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
