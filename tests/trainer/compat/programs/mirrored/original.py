"""Trains the model of mirrored_mnist with TensorFlow's MirroredStrategy on two CPU devices.

Writes the checkpoint that an Estimator of TensorFlow would have written.
"""

import mirrored_mnist
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def step(features, labels):
    params = {"learning_rate": mirrored_mnist.LEARNING_RATE}
    spec = mirrored_mnist.model_fn(features, labels, tf.estimator.ModeKeys.TRAIN, params)
    return spec.loss, spec.train_op


def main(_):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope(), strategy._scale_loss_for_estimator_enabled():
        tf.train.create_global_step()
        iterator = strategy.make_input_fn_iterator(lambda _: mirrored_mnist.train_input_fn())
        loss, train_op = strategy.extended.call_for_each_replica(step, args=iterator.get_next())
        loss = strategy.reduce(tf.distribute.ReduceOp.MEAN, loss, axis=None)
        train_op = strategy.group(train_op)
        saver = tf.train.Saver()
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(iterator.initialize())
        for _ in range(mirrored_mnist.FLAGS.train_steps):
            last, _ = session.run([loss, train_op])
        saver.save(session, mirrored_mnist.FLAGS.model_dir + "/model.ckpt")
    print("%.6f" % last)


if __name__ == "__main__":
    tf.app.run()
