"""A program in the manner of Mesh TensorFlow's: each core has its part of the hidden layer."""

import mesh_tensorflow as mtf
import tensorflow.compat.v1 as tf

flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", "", "directory of the checkpoints")
flags.DEFINE_string("mesh_shape", "all:2", "mesh shape")
flags.DEFINE_string("layout", "hidden:all", "layout rules")
flags.DEFINE_integer("train_steps", 20, "number of steps")
flags.DEFINE_bool("use_tpu", True, "whether to train on a TPU")

BATCH, IO, HIDDEN = 8, 4, 6


def input_fn(params):
    x = tf.random.stateless_uniform([BATCH, IO], [1, 2])
    return tf.data.Dataset.from_tensors((x, x)).repeat()


def network(features, mesh):
    io, hidden = mtf.Dimension("io", IO), mtf.Dimension("hidden", HIDDEN)
    shape = mtf.Shape([mtf.Dimension("batch", BATCH), io])
    x = mtf.import_tf_tensor(mesh, features, shape)

    def initializer(seed):
        return tf.random_uniform_initializer(-0.5, 0.5, seed=seed)

    h = mtf.layers.dense(x, hidden, use_bias=False, kernel_initializer=initializer(1), name="in")
    y = mtf.layers.dense(h, io, use_bias=False, kernel_initializer=initializer(2), name="out")
    return y, mtf.reduce_mean(mtf.square(y - x))


def model_fn(features, labels, mode, params):
    graph = mtf.Graph()
    mesh_shape = mtf.convert_to_shape(FLAGS.mesh_shape)
    layout_rules = mtf.convert_to_layout_rules(FLAGS.layout)
    devices = [""] * mesh_shape.size
    placer = None
    if FLAGS.use_tpu:
        context = params["context"]
        hosts = [
            context.tpu_host_placement_function(host_id=host) for host in range(context.num_hosts)
        ]
        placer = mtf.utils.BalancedVariablePlacer(hosts, [0] * len(hosts))
        mesh_impl = mtf.simd_mesh_impl.SimdMeshImpl(
            mesh_shape, layout_rules, devices, context.device_assignment
        )
    else:
        mesh_impl = mtf.placement_mesh_impl.PlacementMeshImpl(mesh_shape, layout_rules, devices)
    mesh = mtf.Mesh(graph, "mesh", placer)
    with mtf.utils.outside_all_rewrites():
        y, loss = network(features, mesh)
    update_ops = []
    if mode == tf.estimator.ModeKeys.TRAIN:
        variables = graph.trainable_variables
        gradients = mtf.gradients([loss], [variable.outputs[0] for variable in variables])
        optimizer = mtf.optimize.SgdOptimizer(learning_rate=0.5)
        for gradient, variable in zip(gradients, variables):
            update_ops.extend(optimizer.apply_grad(gradient, variable))
    else:
        replicated = mtf.anonymize(y)
    lowering = mtf.Lowering(graph, {mesh: mesh_impl})
    tf_loss = tf.to_float(lowering.export_to_tf_tensor(loss))
    if mode == tf.estimator.ModeKeys.TRAIN:
        updates = [lowering.lowered_operation(op) for op in update_ops]
        train_op = tf.group(updates + [tf.assign_add(tf.train.get_global_step(), 1)])
    else:
        tf_y = lowering.export_to_tf_tensor(replicated)
    with mtf.utils.outside_all_rewrites():
        restore_hook = mtf.MtfRestoreHook(lowering)
        if mode == tf.estimator.ModeKeys.EVAL:
            return tf.estimator.tpu.TPUEstimatorSpec(
                mode,
                loss=tf_loss,
                evaluation_hooks=[restore_hook],
                eval_metrics=(lambda y: {"mean": tf.metrics.mean(y)}, [tf_y]),
            )
        saver = tf.train.Saver(tf.global_variables(), sharded=True, save_relative_paths=True)
        tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
        saver_hook = tf.train.CheckpointSaverHook(
            FLAGS.model_dir,
            save_steps=10,
            saver=saver,
            listeners=[mtf.MtfCheckpointSaverListener(lowering)],
        )
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=tf_loss, train_op=train_op, training_hooks=[restore_hook, saver_hook]
        )


def main(_):
    size = mtf.convert_to_shape(FLAGS.mesh_shape).size
    config = tf.estimator.tpu.RunConfig(
        model_dir=FLAGS.model_dir,
        save_checkpoints_steps=None,
        save_checkpoints_secs=None,
        tpu_config=tf.estimator.tpu.TPUConfig(
            num_shards=size if FLAGS.use_tpu else None,
            iterations_per_loop=5,
            num_cores_per_replica=1,
            per_host_input_for_training=tf.estimator.tpu.InputPipelineConfig.BROADCAST,
        ),
    )
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn,
        config=config,
        use_tpu=FLAGS.use_tpu,
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
    )
    estimator.train(input_fn, max_steps=FLAGS.train_steps)
    print("loss", estimator.evaluate(input_fn, steps=1)["loss"])


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.app.run()
