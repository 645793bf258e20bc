"""Fine-tunes an encoder to classify sentences as sad or glad."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import collections
import csv
import os

import modeling
import optimization
import tensorflow as tf
import tokenization

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", None, "Where train.tsv, dev.tsv and test.tsv are.")
flags.DEFINE_string("bert_config_file", None, "The sizes of the encoder.")
flags.DEFINE_string("vocab_file", None, "One word piece a line.")
flags.DEFINE_string("output_dir", None, "Where checkpoints and results go.")
flags.DEFINE_string("init_checkpoint", None, "Where the encoder starts from.")
flags.DEFINE_string("export_dir", None, "Where a model to serve goes.")
flags.DEFINE_bool("do_lower_case", True, "Whether case does not matter.")
flags.DEFINE_integer("max_seq_length", 12, "Longer sentences are cut, shorter ones padded.")
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate on dev.tsv.")
flags.DEFINE_bool("do_predict", False, "Whether to predict test.tsv.")
flags.DEFINE_integer("train_batch_size", 16, "Rows of a step.")
flags.DEFINE_integer("eval_batch_size", 8, "Rows of an evaluation's batch.")
flags.DEFINE_integer("predict_batch_size", 8, "Rows of a prediction's batch.")
flags.DEFINE_float("learning_rate", 5e-5, "The highest, after the warm-up.")
flags.DEFINE_float("num_train_epochs", 3.0, "How often each example is seen.")
flags.DEFINE_float("warmup_proportion", 0.1, "Part of the training with a rising rate.")
flags.DEFINE_integer("save_checkpoints_steps", 1000, "How often checkpoints are saved.")
flags.DEFINE_integer("iterations_per_loop", 1000, "Steps of a call.")
flags.DEFINE_bool("use_tpu", False, "Whether to use a TPU.")
flags.DEFINE_string("tpu_name", None, "The TPU, by its name or grpc:// address.")
flags.DEFINE_string("tpu_zone", None, "Its zone.")
flags.DEFINE_string("gcp_project", None, "Its project.")
flags.DEFINE_string("master", None, "TensorFlow's master.")
flags.DEFINE_integer("num_tpu_cores", 8, "How many cores the TPU has.")

LABELS = ["sad", "glad"]

InputExample = collections.namedtuple("InputExample", ["text", "label"])


class PaddingInputExample(object):
    """A row that fills up the last batch: a TPU needs full batches, and no row may be lost."""


def read_examples(part):
    with tf.gfile.Open(os.path.join(FLAGS.data_dir, part + ".tsv"), "r") as lines:
        # The rows of test.tsv have no label; use the first label, which prediction ignores.
        return [
            InputExample(row[0], (row[1:] or LABELS)[0])
            for row in csv.reader(lines, delimiter="\t")
        ]


def padded(examples, batch_size):
    missing = -len(examples) % batch_size if FLAGS.use_tpu else 0
    return examples + [PaddingInputExample()] * missing


def to_columns(example, tokenizer):
    """Return the features of one example: name → list of ints."""
    is_real = not isinstance(example, PaddingInputExample)
    ids = []
    if is_real:
        pieces = tokenizer.tokenize(example.text)[: FLAGS.max_seq_length - 2]
        ids = tokenizer.convert_tokens_to_ids(["[CLS]"] + pieces + ["[SEP]"])
    rest = [0] * (FLAGS.max_seq_length - len(ids))
    return {
        "input_ids": ids + rest,
        "input_mask": [1] * len(ids) + rest,
        "segment_ids": [0] * FLAGS.max_seq_length,
        "label_ids": [LABELS.index(example.label) if is_real else 0],
        "is_real_example": [int(is_real)],
    }


def write_records(examples, tokenizer, path):
    with tf.python_io.TFRecordWriter(path) as writer:
        for number, example in enumerate(examples):
            if number % 100 == 0:
                tf.logging.info("Writing row %d of %d", number, len(examples))
            feature = collections.OrderedDict()
            for name, values in sorted(to_columns(example, tokenizer).items()):
                feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            record = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(record.SerializeToString())


def file_based_input_fn_builder(path, is_training, drop_remainder):
    columns = {}
    for name in ("input_ids", "input_mask", "segment_ids"):
        columns[name] = tf.FixedLenFeature([FLAGS.max_seq_length], tf.int64)
    for name in ("label_ids", "is_real_example"):
        columns[name] = tf.FixedLenFeature([], tf.int64)

    def decode(record):
        # Convert to int32, because a TPU does not support int64.
        parsed = tf.parse_single_example(record, columns)
        return dict((name, tf.to_int32(value)) for name, value in parsed.items())

    def input_fn(params):
        dataset = tf.data.TFRecordDataset(path)
        if is_training:
            dataset = dataset.repeat().shuffle(buffer_size=100)
        return dataset.apply(
            tf.contrib.data.map_and_batch(
                decode, batch_size=params["batch_size"], drop_remainder=drop_remainder
            )
        )

    return input_fn


def classify(encoder, num_labels, is_training):
    """Return the logits, [batch, num_labels]."""
    pooled = encoder.pooled_output
    weights = tf.get_variable(
        "output_weights",
        [num_labels, pooled.shape[-1].value],
        initializer=tf.truncated_normal_initializer(stddev=0.02),
    )
    bias = tf.get_variable("output_bias", [num_labels], initializer=tf.zeros_initializer())
    if is_training:
        pooled = tf.nn.dropout(pooled, keep_prob=0.9)
    return tf.nn.bias_add(tf.matmul(pooled, weights, transpose_b=True), bias)


def metric_fn(losses, label_ids, logits, is_real_example):
    predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return {
        "eval_accuracy": tf.metrics.accuracy(label_ids, predictions, weights=is_real_example),
        "eval_loss": tf.metrics.mean(losses, weights=is_real_example),
    }


def model_fn_builder(
    config, init_checkpoint, learning_rate, num_train_steps, num_warmup_steps, use_tpu
):

    def model_fn(features, labels, mode, params):
        del labels, params
        for name in sorted(features):
            tf.logging.info("feature %s: %s", name, features[name].shape)
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        label_ids = features["label_ids"]
        is_real_example = tf.to_float(
            features.get("is_real_example", tf.ones(tf.shape(label_ids), tf.int32))
        )

        encoder = modeling.Encoder(
            config,
            is_training,
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
        )
        logits = classify(encoder, len(LABELS), is_training)
        with tf.variable_scope("loss"):
            losses = -tf.reduce_sum(
                tf.one_hot(label_ids, len(LABELS)) * tf.nn.log_softmax(logits, axis=-1), axis=-1
            )
            loss = tf.reduce_mean(losses)

        variables = tf.trainable_variables()
        restored = {}
        scaffold_fn = None
        if init_checkpoint:
            restored = modeling.variables_in(init_checkpoint, variables)

            def restore():
                tf.train.init_from_checkpoint(init_checkpoint, restored)
                return tf.train.Scaffold()

            # On a TPU, pass the function to scaffold_fn, which runs on the host: only it can read
            # files.
            if use_tpu:
                scaffold_fn = restore
            else:
                restore()
        for variable in variables:
            tf.logging.info(
                "variable %s: %s%s",
                variable.op.name,
                variable.shape,
                " from the checkpoint" if variable.op.name in restored else "",
            )

        if is_training:
            train_op = optimization.create_optimizer(
                loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu
            )
            return tf.contrib.tpu.TPUEstimatorSpec(
                mode=mode, loss=loss, train_op=train_op, scaffold_fn=scaffold_fn
            )
        if mode == tf.estimator.ModeKeys.EVAL:
            return tf.contrib.tpu.TPUEstimatorSpec(
                mode=mode,
                loss=loss,
                scaffold_fn=scaffold_fn,
                eval_metrics=(metric_fn, [losses, label_ids, logits, is_real_example]),
            )
        return tf.contrib.tpu.TPUEstimatorSpec(
            mode=mode, predictions={"probabilities": tf.nn.softmax(logits)}, scaffold_fn=scaffold_fn
        )

    return model_fn


def serving_input_fn():
    shape = [None, FLAGS.max_seq_length]
    features = {
        "input_ids": tf.placeholder(tf.int32, shape, name="input_ids"),
        "input_mask": tf.placeholder(tf.int32, shape, name="input_mask"),
        "segment_ids": tf.placeholder(tf.int32, shape, name="segment_ids"),
        "label_ids": tf.placeholder(tf.int32, [None], name="label_ids"),
    }
    return tf.estimator.export.build_raw_serving_input_receiver_fn(features)()


def train(estimator, examples, tokenizer, num_train_steps):
    path = os.path.join(FLAGS.output_dir, "train.tf_record")
    write_records(examples, tokenizer, path)
    tf.logging.info("Training on %d rows for %d steps", len(examples), num_train_steps)
    estimator.train(
        file_based_input_fn_builder(path, is_training=True, drop_remainder=True),
        max_steps=num_train_steps,
    )


def evaluate(estimator, tokenizer):
    examples = padded(read_examples("dev"), FLAGS.eval_batch_size)
    path = os.path.join(FLAGS.output_dir, "eval.tf_record")
    write_records(examples, tokenizer, path)
    result = estimator.evaluate(
        file_based_input_fn_builder(path, is_training=False, drop_remainder=FLAGS.use_tpu),
        steps=len(examples) // FLAGS.eval_batch_size if FLAGS.use_tpu else None,
    )
    with tf.gfile.GFile(os.path.join(FLAGS.output_dir, "eval_results.txt"), "w") as writer:
        for key in sorted(result.keys()):
            tf.logging.info("  %s = %s", key, str(result[key]))
            writer.write("%s = %s\n" % (key, str(result[key])))


def predict(estimator, tokenizer):
    examples = read_examples("test")
    path = os.path.join(FLAGS.output_dir, "predict.tf_record")
    write_records(padded(examples, FLAGS.predict_batch_size), tokenizer, path)
    predictions = estimator.predict(
        file_based_input_fn_builder(path, is_training=False, drop_remainder=FLAGS.use_tpu)
    )
    written = 0
    with tf.gfile.GFile(os.path.join(FLAGS.output_dir, "test_results.tsv"), "w") as writer:
        for number, prediction in enumerate(predictions):
            if number >= len(examples):
                break
            writer.write("\t".join(str(probability) for probability in prediction["probabilities"]) + "\n")
            written += 1
    assert written == len(examples)


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.gfile.MakeDirs(FLAGS.output_dir)
    config = modeling.EncoderConfig.from_json_file(FLAGS.bert_config_file)
    tokenizer = tokenization.Tokenizer(FLAGS.vocab_file, FLAGS.do_lower_case)

    tpu_cluster_resolver = None
    if FLAGS.use_tpu and FLAGS.tpu_name:
        tpu_cluster_resolver = tf.contrib.cluster_resolver.TPUClusterResolver(
            FLAGS.tpu_name, zone=FLAGS.tpu_zone, project=FLAGS.gcp_project
        )
    is_per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
    run_config = tf.contrib.tpu.RunConfig(
        cluster=tpu_cluster_resolver,
        master=FLAGS.master,
        model_dir=FLAGS.output_dir,
        tf_random_seed=12,
        save_checkpoints_steps=FLAGS.save_checkpoints_steps,
        tpu_config=tf.contrib.tpu.TPUConfig(
            iterations_per_loop=FLAGS.iterations_per_loop,
            num_shards=FLAGS.num_tpu_cores,
            per_host_input_for_training=is_per_host,
        ),
    )

    train_examples = num_train_steps = num_warmup_steps = None
    if FLAGS.do_train:
        train_examples = read_examples("train")
        num_train_steps = int(FLAGS.num_train_epochs * len(train_examples) / FLAGS.train_batch_size)
        num_warmup_steps = int(FLAGS.warmup_proportion * num_train_steps)

    # With use_tpu=False the TPUEstimator runs on the CPU or the GPU, as an Estimator does.
    estimator = tf.contrib.tpu.TPUEstimator(
        use_tpu=FLAGS.use_tpu,
        model_fn=model_fn_builder(
            config,
            FLAGS.init_checkpoint,
            FLAGS.learning_rate,
            num_train_steps,
            num_warmup_steps,
            FLAGS.use_tpu,
        ),
        config=run_config,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
        predict_batch_size=FLAGS.predict_batch_size,
    )

    if FLAGS.do_train:
        train(estimator, train_examples, tokenizer, num_train_steps)
    if FLAGS.do_eval:
        evaluate(estimator, tokenizer)
    if FLAGS.do_predict:
        predict(estimator, tokenizer)
    if FLAGS.export_dir:
        path = estimator.export_savedmodel(FLAGS.export_dir, serving_input_fn)
        print("exported to %s" % path.decode("utf-8"))


if __name__ == "__main__":
    for flag in ("data_dir", "bert_config_file", "vocab_file", "output_dir"):
        flags.mark_flag_as_required(flag)
    tf.app.run()
