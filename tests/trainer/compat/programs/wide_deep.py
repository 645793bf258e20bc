"""Predicts the income of people by a wide and deep model, with canned estimators of TensorFlow 1."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import shutil

from absl import app
from absl import flags
import tensorflow as tf
from tensorflow_estimator.python.estimator.canned import metric_keys

FLAGS = flags.FLAGS
flags.DEFINE_string("data_file", None, "CSV rows of age, education, occupation, hours, income")
flags.DEFINE_string("model_dir", None, "where checkpoints go")
flags.DEFINE_string("export_dir", None, "where the SavedModel goes")
flags.DEFINE_enum("model_type", "wide_deep", ["wide", "deep", "wide_deep"], "the model")
flags.DEFINE_integer("train_steps", 100, "steps")
flags.DEFINE_boolean("clean", False, "whether to delete model_dir first")

_CSV_COLUMNS = ["age", "education", "occupation", "hours_per_week", "income_bracket"]
_CSV_DEFAULTS = [[0], [""], [""], [0], [""]]


def build_model_columns():
    age = tf.feature_column.numeric_column("age")
    hours = tf.feature_column.numeric_column("hours_per_week")
    education = tf.feature_column.categorical_column_with_vocabulary_list(
        "education", ["Bachelors", "HS-grad", "Masters"])
    occupation = tf.feature_column.categorical_column_with_hash_bucket(
        "occupation", hash_bucket_size=100)
    age_buckets = tf.feature_column.bucketized_column(age, boundaries=[25, 35, 45, 55])
    crossed = [tf.feature_column.crossed_column(
        ["education", "occupation"], hash_bucket_size=100)]
    wide = [education, occupation, age_buckets] + crossed
    deep = [
        age, hours,
        tf.feature_column.indicator_column(education),
        tf.feature_column.embedding_column(occupation, dimension=4),
    ]
    return wide, deep


def build_estimator(model_dir, model_type, wide, deep):
    config = tf.estimator.RunConfig(tf_random_seed=1).replace(keep_checkpoint_max=2)
    if model_type == "wide":
        return tf.estimator.LinearClassifier(
            model_dir=model_dir, feature_columns=wide, config=config)
    if model_type == "deep":
        return tf.estimator.DNNClassifier(
            model_dir=model_dir, feature_columns=deep, hidden_units=[16, 8], config=config)
    return tf.estimator.DNNLinearCombinedClassifier(
        model_dir=model_dir,
        linear_feature_columns=wide,
        linear_optimizer=tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
        dnn_feature_columns=deep,
        dnn_hidden_units=[16, 8],
        dnn_dropout=0.1,
        config=config)


def input_fn(data_file, shuffle):
    def parse_csv(value):
        columns = tf.decode_csv(value, record_defaults=_CSV_DEFAULTS)
        features = dict(zip(_CSV_COLUMNS, columns))
        labels = features.pop("income_bracket")
        return features, tf.equal(labels, ">50K")

    dataset = tf.data.TextLineDataset(data_file)
    if shuffle:
        dataset = dataset.shuffle(buffer_size=500, seed=1).repeat()
    return dataset.map(parse_csv, num_parallel_calls=2).batch(40)


def main(_):
    if FLAGS.clean:
        shutil.rmtree(FLAGS.model_dir, ignore_errors=True)
    wide, deep = build_model_columns()
    model = build_estimator(FLAGS.model_dir, FLAGS.model_type, wide, deep)

    def my_auc(labels, predictions):
        return {"my_auc": tf.metrics.auc(labels, predictions["logistic"])}

    model = tf.contrib.estimator.add_metrics(model, my_auc)
    spec = tf.feature_column.make_parse_example_spec(wide + deep)
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
    train_spec = tf.estimator.TrainSpec(
        lambda: input_fn(FLAGS.data_file, True), max_steps=FLAGS.train_steps)
    eval_spec = tf.estimator.EvalSpec(
        lambda: input_fn(FLAGS.data_file, False), steps=None, start_delay_secs=0, throttle_secs=0)
    tf.estimator.train_and_evaluate(model, train_spec, eval_spec)
    if FLAGS.export_dir:
        results = model.evaluate(lambda: input_fn(FLAGS.data_file, False))
        for key in sorted([metric_keys.MetricKeys.ACCURACY, "my_auc", "global_step"]):
            print("%s: %s" % (key, results[key]))
        model.export_savedmodel(FLAGS.export_dir, receiver, strip_default_attrs=True)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    app.run(main)
