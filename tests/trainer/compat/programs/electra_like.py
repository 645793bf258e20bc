"""Pretrains a generator, which fills gaps, and a discriminator, which finds what was filled in."""

import argparse
import collections
import json
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

PAD, CLS, SEP, MASK = 0, 1, 2, 3
FIRST_WORD = 4

Prediction = collections.namedtuple("Prediction", ["logits", "loss", "accuracy"])
Masked = collections.namedtuple("Masked", ["ids", "positions", "weights", "targets"])


class Config(object):
    """All settings of the program; the flag --hparams can change each of them."""

    def __init__(self, data_dir, model_name, **overrides):
        self.model_name = model_name
        self.model_dir = os.path.join(data_dir, "models", model_name)
        self.corpus = os.path.join(data_dir, "corpus.txt")
        self.records = os.path.join(data_dir, "records", model_name)
        self.do_train = True
        self.do_eval = True
        self.use_tpu = False
        self.tpu_name = None
        self.tpu_job_name = None
        self.num_tpu_cores = 8
        self.iterations_per_loop = 10
        self.train_batch_size = 16
        self.eval_batch_size = 16
        self.num_train_steps = 60
        self.num_eval_steps = 2
        self.save_checkpoints_steps = 30
        self.learning_rate = 0.02
        self.disc_weight = 5.0
        self.max_seq_length = 8
        self.max_predictions = 2
        self.vocab_size = 16
        self.embedding_size = 8
        self.hidden_size = 16
        self.num_layers = 1
        for name, value in overrides.items():
            if name not in self.__dict__:
                raise ValueError("Unknown setting: " + name)
            setattr(self, name, value)


class EtaHook(tf.estimator.SessionRunHook):
    """Prints the step, the logged values, the speed, and the time until training ends."""

    def __init__(self, to_log, n_steps, iterations_per_loop):
        self._to_log = to_log
        self._n_steps = n_steps
        self._every = iterations_per_loop
        self._start_step = None
        self._start_time = None
        self._printed = -1

    def begin(self):
        self._global_step = tf.train.get_or_create_global_step()

    def before_run(self, run_context):
        if self._start_step is None:
            self._start_step = run_context.session.run(self._global_step)
            self._start_time = time.time()
        return tf.estimator.SessionRunArgs(dict(self._to_log, step=self._global_step))

    def after_run(self, run_context, run_values):
        values = run_values.results
        step = values.pop("step")
        if step // self._every == self._printed:
            return
        self._printed = step // self._every
        steps = max(step - self._start_step, 1)
        rate = steps / max(time.time() - self._start_time, 1e-6)
        text = "".join(", %s: %.4f" % item for item in sorted(values.items()))
        # Print text and line break in one call: TensorFlow writes from other threads.
        print(
            "%d/%d = %.1f%%, SPS: %.1f, ETA: %ds%s\n"
            % (
                step,
                self._n_steps,
                100.0 * step / self._n_steps,
                rate,
                (self._n_steps - step) / rate,
                text,
            ),
            end="",
            flush=True,
        )

    def end(self, session):
        print("trained until step %d\n" % session.run(self._global_step), end="", flush=True)


def write_records(config):
    """Write a TFRecord file with one tf.Example for each line of the corpus."""
    words = {}
    tf.io.gfile.makedirs(os.path.dirname(config.records))
    count = 0
    with tf.io.TFRecordWriter(config.records) as writer:
        for line in tf.io.gfile.GFile(config.corpus):
            ids = [words.setdefault(word, FIRST_WORD + len(words)) for word in line.split()]
            ids = [CLS] + ids[: config.max_seq_length - 2] + [SEP]
            mask = [1] * len(ids) + [PAD] * (config.max_seq_length - len(ids))
            ids += [PAD] * (config.max_seq_length - len(ids))
            feature = {
                "input_ids": tf.train.Feature(int64_list=tf.train.Int64List(value=ids)),
                "input_mask": tf.train.Feature(int64_list=tf.train.Int64List(value=mask)),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
            count += 1
    assert FIRST_WORD + len(words) <= config.vocab_size
    print("%d lines, %d words" % (count, len(words)))


def get_input_fn(config, is_training):

    def input_fn(params):
        names = {
            "input_ids": tf.io.FixedLenFeature([config.max_seq_length], tf.int64),
            "input_mask": tf.io.FixedLenFeature([config.max_seq_length], tf.int64),
        }

        def decode(record):
            example = tf.io.parse_single_example(record, names)
            return {name: tf.cast(value, tf.int32) for name, value in example.items()}

        d = tf.data.TFRecordDataset(config.records)
        d = d.repeat()
        if is_training:
            d = d.shuffle(100, seed=1)
        return d.apply(
            tf.data.experimental.map_and_batch(
                decode, batch_size=params["batch_size"], num_parallel_batches=2, drop_remainder=True
            )
        )

    return input_fn


def hide_words(config, features):
    """Replace some words by the mask token; never replace padding or separators."""
    ids = features["input_ids"]
    candidates = tf.cast(ids >= FIRST_WORD, tf.float32)
    noise = tf.random_uniform(tf.shape(ids), minval=0.1)
    _, positions = tf.nn.top_k(candidates * noise, config.max_predictions)
    positions = tf.cast(positions, tf.int32)
    targets = tf.batch_gather(ids, positions)
    weights = tf.batch_gather(candidates, positions)
    gaps = tf.where(weights > 0, MASK * tf.ones_like(targets), targets)
    return Masked(put_in(ids, positions, gaps), positions, weights, targets)


def put_in(ids, positions, values):
    """Return the ids, with `values` in place of those at `positions` in each row."""
    at = tf.one_hot(positions, tf.shape(ids)[1], dtype=tf.int32)
    hit = tf.reduce_max(at, axis=1)
    return (1 - hit) * ids + tf.reduce_sum(at * tf.expand_dims(values, -1), axis=1)


class PretrainingModel(object):
    def __init__(self, config, features, is_training):
        self._config = config
        with tf.variable_scope("embeddings"):
            self._embeddings = tf.get_variable(
                "word_embeddings",
                [config.vocab_size, config.embedding_size],
                initializer=tf.truncated_normal_initializer(stddev=0.1),
            )
            self._positions = tf.get_variable(
                "position_embeddings",
                [config.max_seq_length, config.embedding_size],
                initializer=tf.truncated_normal_initializer(stddev=0.1),
            )

        masked = hide_words(config, features)
        hidden = self._transform(masked.ids, "generator", config.hidden_size // 2)
        self.mlm = self._fill_in(hidden, masked)
        gumbel = -tf.log(
            -tf.log(tf.random_uniform(tf.shape(self.mlm.logits), minval=1e-6, maxval=1.0 - 1e-6))
        )
        sampled = tf.argmax(
            tf.stop_gradient(self.mlm.logits) + gumbel, axis=-1, output_type=tf.int32
        )
        sampled = tf.where(masked.weights > 0, sampled, masked.targets)
        fakes = put_in(masked.ids, masked.positions, sampled)
        self.is_fake = tf.cast(tf.not_equal(fakes, features["input_ids"]), tf.int32)
        self.disc = self._discriminate(
            self._transform(fakes, "discriminator", config.hidden_size), features["input_mask"]
        )
        self.total_loss = self.mlm.loss + config.disc_weight * self.disc.loss

        self.eval_inputs = {
            "masked_targets": masked.targets,
            "masked_weights": masked.weights,
            "masked_predictions": tf.argmax(self.mlm.logits, axis=-1, output_type=tf.int32),
            "mlm_loss": tf.reshape(self.mlm.loss, [1]),
            "is_fake": self.is_fake,
            "disc_predictions": tf.cast(self.disc.logits > 0, tf.int32),
            "disc_loss": tf.reshape(self.disc.loss, [1]),
            "input_mask": features["input_mask"],
        }

    def _transform(self, ids, scope, size):
        """Return the hidden state of each position, [batch, length, size]."""
        with tf.variable_scope(scope):
            hidden = tf.nn.embedding_lookup(self._embeddings, ids) + self._positions
            hidden = tf.layers.dense(hidden, size, name="embeddings_project")
            for number in range(self._config.num_layers):
                with tf.variable_scope("layer_%d" % number):
                    query, key, value = tf.split(
                        tf.layers.dense(hidden, 3 * size, name="qkv"), 3, axis=-1
                    )
                    scores = tf.einsum("bqd,bkd->bqk", query, key) / np.sqrt(size)
                    hidden += tf.matmul(tf.nn.softmax(scores), value)
                    hidden += tf.layers.dense(
                        tf.layers.dense(hidden, 2 * size, tf.nn.relu, name="wide"),
                        size,
                        name="narrow",
                    )
            return hidden

    def _fill_in(self, hidden, masked):
        with tf.variable_scope("generator_predictions"):
            at = tf.one_hot(masked.positions, self._config.max_seq_length)
            hidden = tf.matmul(at, hidden)
            hidden = tf.layers.dense(hidden, self._config.embedding_size, tf.nn.relu)
            bias = tf.get_variable(
                "output_bias", [self._config.vocab_size], initializer=tf.zeros_initializer()
            )
            logits = tf.einsum("bpd,vd->bpv", hidden, self._embeddings) + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=masked.targets, logits=logits
            )
            weights = masked.weights
            loss = tf.reduce_sum(losses * weights) / (tf.reduce_sum(weights) + 1e-6)
            return Prediction(logits, loss, None)

    def _discriminate(self, hidden, input_mask):
        with tf.variable_scope("discriminator_predictions"):
            hidden = tf.layers.dense(hidden, self._config.hidden_size, tf.nn.relu)
            logits = tf.squeeze(tf.layers.dense(hidden, units=1), -1)
            weights = tf.cast(input_mask, tf.float32)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(
                labels=tf.cast(self.is_fake, tf.float32), logits=logits
            )
            loss = tf.reduce_sum(losses * weights) / (tf.reduce_sum(weights) + 1e-6)
            return Prediction(logits, loss, None)


def metric_fn(
    masked_targets,
    masked_weights,
    masked_predictions,
    mlm_loss,
    is_fake,
    disc_predictions,
    disc_loss,
    input_mask,
):
    return {
        "masked_lm_accuracy": tf.metrics.accuracy(
            labels=masked_targets, predictions=masked_predictions, weights=masked_weights
        ),
        "masked_lm_loss": tf.metrics.mean(mlm_loss),
        "disc_accuracy": tf.metrics.accuracy(
            labels=is_fake, predictions=disc_predictions, weights=input_mask
        ),
        "disc_loss": tf.metrics.mean(disc_loss),
    }


def model_fn_builder(config):

    def model_fn(features, labels, mode, params):
        model = PretrainingModel(config, features, mode == tf.estimator.ModeKeys.TRAIN)
        if mode == tf.estimator.ModeKeys.TRAIN:
            step = tf.train.get_or_create_global_step()
            rate = tf.train.polynomial_decay(config.learning_rate, step, config.num_train_steps)
            optimizer = tf.train.AdamOptimizer(rate)
            if config.use_tpu:
                optimizer = tf.tpu.CrossShardOptimizer(optimizer)
            train_op = optimizer.minimize(model.total_loss, global_step=step)
            # On a TPU, log nothing: a session cannot fetch tensors inside the TPU computation.
            to_log = {} if config.use_tpu else dict(loss=model.total_loss)
            return tf.estimator.tpu.TPUEstimatorSpec(
                mode=mode,
                loss=model.total_loss,
                train_op=train_op,
                training_hooks=[
                    EtaHook(to_log, config.num_train_steps, config.iterations_per_loop)
                ],
            )
        if mode == tf.estimator.ModeKeys.EVAL:
            return tf.estimator.tpu.TPUEstimatorSpec(
                mode=mode, loss=model.total_loss, eval_metrics=(metric_fn, model.eval_inputs)
            )
        raise ValueError("Only to train and to evaluate")

    return model_fn


def train_or_eval(config):
    is_per_host = tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2
    tpu_cluster_resolver = None
    if config.use_tpu and config.tpu_name:
        tpu_cluster_resolver = tf.distribute.cluster_resolver.TPUClusterResolver(config.tpu_name)
    tpu_config = tf.estimator.tpu.TPUConfig(
        iterations_per_loop=config.iterations_per_loop,
        num_shards=config.num_tpu_cores,
        tpu_job_name=config.tpu_job_name,
        per_host_input_for_training=is_per_host,
    )
    run_config = tf.estimator.tpu.RunConfig(
        cluster=tpu_cluster_resolver,
        model_dir=config.model_dir,
        save_checkpoints_steps=config.save_checkpoints_steps,
        tf_random_seed=3,
        tpu_config=tpu_config,
    )
    estimator = tf.estimator.tpu.TPUEstimator(
        use_tpu=config.use_tpu,
        model_fn=model_fn_builder(config),
        config=run_config,
        train_batch_size=config.train_batch_size,
        eval_batch_size=config.eval_batch_size,
    )
    if config.do_train:
        print("Training for %d steps" % config.num_train_steps)
        estimator.train(input_fn=get_input_fn(config, True), max_steps=config.num_train_steps)
    if config.do_eval:
        result = estimator.evaluate(
            input_fn=get_input_fn(config, False), steps=config.num_eval_steps
        )
        with tf.io.gfile.GFile(os.path.join(config.model_dir, "results.json"), "w") as writer:
            writer.write(json.dumps({name: float(value) for name, value in result.items()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True, help="Where corpus.txt is.")
    parser.add_argument("--model-name", required=True, help="What the model is called.")
    parser.add_argument("--hparams", default="{}", help="JSON of other settings.")
    args = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.ERROR)
    config = Config(args.data_dir, args.model_name, **json.loads(args.hparams))
    write_records(config)
    train_or_eval(config)


if __name__ == "__main__":
    main()
