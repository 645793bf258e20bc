"""Classifies species of iris by feature columns, with an Estimator and with a TPUEstimator."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import argparse
import os

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument(
    "--data_dir", required=True, help="where iris_training.csv and iris_test.csv are"
)
parser.add_argument("--model_dir", required=True, help="where checkpoints go")
parser.add_argument("--batch_size", default=16, type=int, help="rows of a step")
parser.add_argument("--train_steps", default=100, type=int, help="steps")
parser.add_argument("--use_tpu", action="store_true", help="whether to use a TPU")

CSV_COLUMN_NAMES = ["SepalLength", "SepalWidth", "PetalLength", "PetalWidth", "Garden", "Species"]
CSV_TYPES = [[0.0], [0.0], [0.0], [0.0], [""], [0]]
MEASURES = CSV_COLUMN_NAMES[:4]
GARDENS = ["north", "south", "west"]


def measure_columns():
    columns = [tf.feature_column.numeric_column(key=key) for key in MEASURES]
    columns.append(tf.feature_column.bucketized_column(columns[2], boundaries=[2.5, 4.9]))
    return columns


def garden_column():
    garden = tf.feature_column.categorical_column_with_vocabulary_list("Garden", GARDENS)
    return tf.feature_column.embedding_column(garden, dimension=2)


def csv_input_fn(path, batch_size, is_training, garden_as_id=False):
    """Return a Dataset of (features by name, labels).

    A TPU has no strings: with garden_as_id the host looks up the garden's number.
    """
    table = tf.contrib.lookup.index_table_from_tensor(tf.constant(GARDENS), num_oov_buckets=1)

    def parse(line):
        features = dict(zip(CSV_COLUMN_NAMES, tf.decode_csv(line, CSV_TYPES)))
        label = features.pop("Species")
        if garden_as_id:
            features["Garden"] = tf.to_int32(table.lookup(features["Garden"]))
        return features, label

    dataset = tf.data.TextLineDataset(path).skip(1).map(parse)
    if is_training:
        dataset = dataset.apply(tf.contrib.data.shuffle_and_repeat(200))
    return dataset.batch(batch_size, drop_remainder=is_training or garden_as_id)


def logits_of(net, is_training):
    for units in (10, 10):
        net = tf.contrib.layers.fully_connected(net, units)
    return tf.layers.dense(net, 3, activation=None)


def my_model(features, labels, mode, params):
    """Build the model for an Estimator."""
    net = tf.feature_column.input_layer(features, params["feature_columns"])
    logits = logits_of(net, mode == tf.estimator.ModeKeys.TRAIN)
    predicted_classes = tf.argmax(logits, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        probabilities = tf.nn.softmax(logits)
        predictions = {
            "class_ids": predicted_classes[:, tf.newaxis],
            "probabilities": probabilities,
            "logits": logits,
        }
        return tf.estimator.EstimatorSpec(
            mode,
            predictions=predictions,
            export_outputs={
                "serving_default": tf.estimator.export.PredictOutput(predictions),
                "scores": tf.estimator.export.ClassificationOutput(scores=probabilities),
            },
        )
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.metrics.accuracy(labels=labels, predictions=predicted_classes, name="acc_op")
    tf.summary.scalar("accuracy", accuracy[1])
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    train_op = tf.contrib.layers.optimize_loss(
        loss, tf.train.get_global_step(), learning_rate=0.02, optimizer="Adam"
    )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def tpu_model(features, labels, mode, params):
    """Build the same model for a TPUEstimator, without the ops that a TPU cannot run."""
    columns = tf.feature_column.input_layer(features, params["feature_columns"])
    table = tf.get_variable("garden_embedding", [len(GARDENS) + 1, 2])
    net = tf.concat([columns, tf.nn.embedding_lookup(table, features["Garden"])], axis=1)
    logits = logits_of(net, mode == tf.estimator.ModeKeys.TRAIN)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {
            "class_ids": tf.argmax(logits, axis=1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits),
        }
        return tf.contrib.tpu.TPUEstimatorSpec(
            mode=mode,
            predictions=predictions,
            export_outputs={"serving_default": tf.estimator.export.PredictOutput(predictions)},
        )
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    if mode == tf.estimator.ModeKeys.EVAL:

        def metric_fn(labels, logits):
            return {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, axis=1))}

        return tf.contrib.tpu.TPUEstimatorSpec(
            mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits])
        )
    optimizer = tf.train.AdamOptimizer(0.02)
    if params["tpu"]:
        optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)


def with_estimator(args, train_path, test_path):
    columns = measure_columns() + [garden_column()]
    classifier = tf.estimator.Estimator(
        model_fn=my_model,
        model_dir=os.path.join(args.model_dir, "estimator"),
        config=tf.estimator.RunConfig(tf_random_seed=19830610),
        params={"feature_columns": columns},
    )
    classifier.train(
        input_fn=lambda: csv_input_fn(train_path, args.batch_size, True), steps=args.train_steps
    )
    result = classifier.evaluate(input_fn=lambda: csv_input_fn(test_path, args.batch_size, False))
    print("Estimator: accuracy {accuracy:0.3f}".format(**result))

    expected = ["Setosa", "Versicolor", "Virginica"]
    measures = [[5.1, 3.3, 1.7, 0.5], [5.9, 3.0, 4.2, 1.5], [6.9, 3.1, 5.4, 2.1]]
    predict_x = dict(zip(MEASURES, map(list, zip(*measures))), Garden=["south"] * 3)
    predictions = classifier.predict(
        input_fn=lambda: tf.data.Dataset.from_tensor_slices(predict_x).batch(2)
    )
    for prediction, name in zip(predictions, expected):
        print("Prediction is {}, expected {}".format(expected[prediction["class_ids"][0]], name))

    spec = tf.feature_column.make_parse_example_spec(columns)
    return classifier.export_savedmodel(
        os.path.join(args.model_dir, "estimator_export"),
        tf.estimator.export.build_parsing_serving_input_receiver_fn(spec),
    )


def with_tpu_estimator(args, train_path, test_path):
    columns = measure_columns()
    classifier = tf.contrib.tpu.TPUEstimator(
        model_fn=tpu_model,
        config=tf.contrib.tpu.RunConfig(
            model_dir=os.path.join(args.model_dir, "tpu_estimator"),
            tf_random_seed=19830610,
            tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=20, num_shards=8),
        ),
        params={"feature_columns": columns, "tpu": args.use_tpu},
        use_tpu=args.use_tpu,
        train_batch_size=args.batch_size,
        eval_batch_size=args.batch_size,
    )
    classifier.train(
        input_fn=lambda params: csv_input_fn(train_path, params["batch_size"], True, True),
        max_steps=args.train_steps,
    )
    result = classifier.evaluate(
        input_fn=lambda params: csv_input_fn(test_path, params["batch_size"], False, True), steps=2
    )
    print("TPUEstimator: accuracy {accuracy:0.3f}".format(**result))

    spec = tf.feature_column.make_parse_example_spec(columns)
    spec["Garden"] = tf.FixedLenFeature([], tf.string, default_value=GARDENS[0])
    parsed = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)

    def receiver():
        received = parsed()
        table = tf.contrib.lookup.index_table_from_tensor(tf.constant(GARDENS), num_oov_buckets=1)
        features = dict(received.features)
        features["Garden"] = tf.to_int32(table.lookup(features["Garden"]))
        return tf.estimator.export.ServingInputReceiver(features, received.receiver_tensors)

    return classifier.export_savedmodel(
        os.path.join(args.model_dir, "tpu_estimator_export"), receiver
    )


def main(argv):
    args = parser.parse_args(argv[1:])
    paths = [os.path.join(args.data_dir, name) for name in ("iris_training.csv", "iris_test.csv")]
    for run in (with_estimator, with_tpu_estimator):
        exported = run(args, *paths)
        print("exported to {}".format(exported.decode()))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.app.run(main)
