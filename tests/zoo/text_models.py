"""Models that take strings: a vocabulary, hashed embeddings, feature columns over `tf.Example`."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.zoo.zoo_model import Inputs, ZooModel

v1 = tf.compat.v1

_WORDS = ["the", "a", "film", "was", "good", "bad", "very", "not", "boring", "lovely"]
_LENGTH = 12
_BUCKETS = 64


def _random(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class _TextClassifier(tf.Module):
    """Splits texts into words, looks the words up in a vocabulary file, and classifies."""

    def __init__(self, vocabulary: Path) -> None:
        super().__init__()
        self.vocabulary = tf.saved_model.Asset(str(vocabulary))
        lines = tf.lookup.TextFileInitializer(
            self.vocabulary,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.table = tf.lookup.StaticVocabularyTable(lines, num_oov_buckets=1)
        self.embedding = tf.Variable(_random(0, len(_WORDS) + 1, 16))
        self.kernel = tf.Variable(_random(1, 16, 2))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def classify(self, text: Any) -> dict[str, Any]:
        """Return the logits, float32 [rows, 2]."""
        words = tf.strings.split(tf.strings.lower(text))
        ids = self.table.lookup(words).to_tensor(-1, shape=[None, _LENGTH])
        known = tf.cast(ids >= 0, tf.float32)[..., None]
        vectors = tf.gather(self.embedding, tf.maximum(ids, 0)) * known
        mean = tf.reduce_sum(vectors, 1) / tf.maximum(tf.reduce_sum(known, 1), 1.0)
        return {"logits": tf.tanh(mean) @ self.kernel}


def _write_text_classifier(directory: Path) -> None:
    vocabulary = directory.parent / "vocabulary.txt"
    vocabulary.write_text("\n".join(_WORDS))
    module = _TextClassifier(vocabulary)
    tf.saved_model.save(module, str(directory), signatures=module.classify)


def _texts(rows: int) -> Inputs:
    random = np.random.default_rng(rows)
    texts = [
        " ".join(random.choice([*_WORDS, "unknown"], 1 + row % _LENGTH)) for row in range(rows)
    ]
    return {"text": np.array([text.encode() for text in texts], object)}


class _Recommender(tf.Module):
    """Multiplies the embeddings of a user and an item, which are looked up by hashes of names."""

    def __init__(self) -> None:
        super().__init__()
        self.users = tf.Variable(_random(0, _BUCKETS, 8))
        self.items = tf.Variable(_random(1, _BUCKETS, 8))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="user"),
            tf.TensorSpec([None], tf.string, name="item"),
        ],
        autograph=False,
    )
    def score(self, user: Any, item: Any) -> dict[str, Any]:
        """Return the score of each pair, float32 [rows]."""
        users = tf.gather(self.users, tf.strings.to_hash_bucket_fast(user, _BUCKETS))
        items = tf.gather(self.items, tf.strings.to_hash_bucket_fast(item, _BUCKETS))
        return {"score": tf.reduce_sum(users * items, -1)}


def _write_recommender(directory: Path) -> None:
    module = _Recommender()
    tf.saved_model.save(module, str(directory), signatures=module.score)


def _pairs(rows: int) -> Inputs:
    return {
        "user": np.array([f"user {row}".encode() for row in range(rows)], object),
        "item": np.array([f"item {7 * row}".encode() for row in range(rows)], object),
    }


def _write_wide_and_deep(directory: Path) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        age = tf.feature_column.numeric_column("age")
        job = tf.feature_column.categorical_column_with_vocabulary_list("job", ["baker", "smith"])
        city = tf.feature_column.categorical_column_with_hash_bucket("city", 16)
        buckets = tf.feature_column.bucketized_column(age, [20, 40, 60])
        wide = [buckets, job, city, tf.feature_column.crossed_column([buckets, job], 32)]
        deep = [age, tf.feature_column.embedding_column(city, 4)]
        spec = tf.feature_column.make_parse_example_spec([*wide, *deep])
        examples = v1.placeholder(tf.string, [None], name="examples")
        features = tf.io.parse_example(examples, spec)
        v1.set_random_seed(0)
        linear = v1.feature_column.linear_model(features, wide)
        hidden = v1.layers.dense(
            v1.feature_column.input_layer(features, deep), 16, activation=tf.nn.relu
        )
        logits = linear + v1.layers.dense(hidden, 1)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        # Set the weights of the wide part, which are initialised with zeros.
        for variable in v1.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES, "linear_model"):
            session.run(variable.assign(_random(2, *variable.shape.as_list())))
        v1.saved_model.simple_save(
            session,
            str(directory),
            {"examples": examples},
            {"logits": logits, "probability": tf.sigmoid(logits)},
            legacy_init_op=v1.tables_initializer(),
        )


def _examples(rows: int) -> Inputs:
    def example(row: int) -> bytes:
        feature = tf.train.Feature
        features = {
            "age": feature(float_list=tf.train.FloatList(value=[17.0 + 9 * row])),
            "city": feature(bytes_list=tf.train.BytesList(value=[b"city %d" % row])),
        }
        # An empty list could be the example's end, a zero byte, which arrays of strings drop.
        if row % 3 < 2:
            job = [b"baker", b"smith"][row % 3]
            features["job"] = feature(bytes_list=tf.train.BytesList(value=[job]))
        written = tf.train.Example(features=tf.train.Features(feature=features))
        return bytes(written.SerializeToString())

    return {"examples": np.array([example(row) for row in range(rows)], object)}


TEXT_CLASSIFIER = ZooModel(
    "text classifier, vocabulary file", "`tf.saved_model.save`", _write_text_classifier, _texts
)

ALL = (
    TEXT_CLASSIFIER,
    ZooModel("recommender, hashed names", "`tf.saved_model.save`", _write_recommender, _pairs),
    ZooModel(
        "wide and deep, feature columns over tf.Example",
        "TensorFlow 1, `simple_save`",
        _write_wide_and_deep,
        _examples,
    ),
)
