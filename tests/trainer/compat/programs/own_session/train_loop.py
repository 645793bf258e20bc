"""Fits y = x w + b on all cores of a Cloud TPU, in a session of its own, with infeed loops."""

import threading

import tensorflow as tf
from tensorflow.contrib.cluster_resolver import TPUClusterResolver
from tensorflow.contrib.tpu.python.ops import tpu_ops
from tensorflow.contrib.tpu.python.tpu import (
    device_assignment,
    topology,
    tpu,
    tpu_feed,
    tpu_optimizer,
    training_loop,
)

flags = tf.flags
flags.DEFINE_string("model_dir", None, "Where checkpoints go.")
flags.DEFINE_string("tpu", "demo-tpu", "The TPU's name.")
flags.DEFINE_integer("num_shards", 8, "Replicas.")
flags.DEFINE_integer("iterations", 5, "Steps of a loop.")
flags.DEFINE_integer("train_steps", 20, "Steps in all.")
FLAGS = flags.FLAGS

ROWS = 2


def input_fn():
    rows = FLAGS.num_shards * ROWS
    x = tf.reshape(tf.range(rows * 2, dtype=tf.float32), [rows, 2]) / rows
    y = tf.matmul(x, [[1.0], [2.0]]) + 0.5
    dataset = tf.data.Dataset.from_tensors((x, y)).repeat()
    return dataset.make_one_shot_iterator().get_next()


def step(total_loss, x, y):
    with tf.variable_scope("line"):
        w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer())
        b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
    loss = tf.losses.mean_squared_error(y, tf.matmul(x, w) + b)
    optimizer = tpu_optimizer.CrossShardOptimizer(tf.train.MomentumOptimizer(0.1, 0.9))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
    with tf.control_dependencies([train_op]):
        outfeed = tpu_ops.outfeed_enqueue_tuple([loss])
    with tf.control_dependencies([outfeed]):
        return total_loss + loss


def main(_):
    master = TPUClusterResolver(FLAGS.tpu).get_master()
    with tf.Graph().as_default() as graph:
        with tf.Session(master, graph=graph) as session:
            system = topology.Topology(serialized=session.run(tpu.initialize_system()))
        cores = device_assignment.device_assignment(system, num_replicas=FLAGS.num_shards)
        batch = list(input_fn())
        queue = tpu_feed.InfeedQueue(number_of_tuple_elements=len(batch))
        queue.set_number_of_shards(FLAGS.num_shards)
        queue.set_configuration_from_input_tensors(batch)
        enqueue = queue.split_inputs_and_generate_enqueue_ops(batch, device_assignment=cores)

        def loop():
            return training_loop.repeat(FLAGS.iterations, step, [0.0], infeed_queue=queue)

        (total,) = tpu.shard(
            loop,
            num_shards=FLAGS.num_shards,
            outputs_from_all_shards=False,
            device_assignment=cores,
        )
        losses = []
        for replica in range(FLAGS.num_shards):
            with tf.device(cores.host_device(replica=replica, job="tpu_worker")):
                ordinal = int(cores.tpu_ordinal(replica=replica))
                losses += tpu_ops.outfeed_dequeue_tuple([tf.float32], [[]], device_ordinal=ordinal)
        mean = tf.reduce_mean(losses)
        means = []
        with tf.train.MonitoredTrainingSession(
            master, checkpoint_dir=FLAGS.model_dir, save_checkpoint_steps=10
        ) as session:
            plain = session._tf_sess()

            def feed():
                for _ in range(FLAGS.train_steps):
                    plain.run(enqueue)

            def drain():
                for _ in range(FLAGS.train_steps):
                    means.append(float(plain.run(mean)))

            threads = [threading.Thread(target=target) for target in (feed, drain)]
            for thread in threads:
                thread.start()
            for _ in range(FLAGS.train_steps // FLAGS.iterations):
                session.run(total)
            for thread in threads:
                thread.join()
        print("\n".join("%.4f" % mean for mean in means))


if __name__ == "__main__":
    tf.app.run()
