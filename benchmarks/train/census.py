"""The wide and deep model of census incomes, on a table that is drawn from a seed."""

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

ROWS = 12_800
HIDDEN_UNITS = [100, 75, 50, 25]

# Name → the least and the largest value; capital is in thousands.
NUMBERS = {
    "age": (17, 90),
    "education_num": (1, 16),
    "capital_gain": (0, 99),
    "capital_loss": (0, 4),
    "hours_per_week": (1, 99),
}
# Name → the number of categories, which the model knows: as a vocabulary, and as an integer.
VOCABULARIES = {
    "workclass": 9,
    "education": 16,
    "marital_status": 7,
    "relationship": 6,
    "race": 5,
}
IDENTITIES = {"gender": 2}
# Name → the numbers of categories in the table, and of buckets in the model.
HASHED = {"occupation": (15, 1000), "native_country": (42, 100)}


def create_estimator(config: Any) -> Any:
    """Create a DNNLinearCombinedClassifier with its default optimizers."""
    column = tf.feature_column
    numbers = [column.numeric_column(name) for name in NUMBERS]
    known = [
        column.categorical_column_with_vocabulary_list(name, _vocabulary(name, count))
        for name, count in VOCABULARIES.items()
    ]
    known += [
        column.categorical_column_with_identity(name, count) for name, count in IDENTITIES.items()
    ]
    hashed = [
        column.categorical_column_with_hash_bucket(name, buckets)
        for name, (_, buckets) in HASHED.items()
    ]
    decade = column.bucketized_column(numbers[0], [18, 25, 30, 35, 40, 45, 50, 55, 60, 65])
    crossed = [
        column.crossed_column(["education", "occupation"], 1000),
        column.crossed_column([decade, "education", "occupation"], 1000),
    ]
    return tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[*known, *hashed, decade, *crossed],
        dnn_feature_columns=[
            *numbers,
            *map(column.indicator_column, known),
            *(column.embedding_column(category, dimension=8) for category in hashed),
        ],
        dnn_hidden_units=HIDDEN_UNITS,
        config=config,
    )


def input_fn(batch_size: int) -> Callable[[], Any]:
    """Return an input_fn with cached batches, so that tf.data takes little time."""

    def draw(number: Any) -> Any:
        def integers(column: int, least: int, largest: int) -> Any:
            return tf.random.stateless_uniform(
                [batch_size, 1], [column, number], least, largest + 1, tf.int32
            )

        features: dict[str, Any] = {}
        for name, limits in NUMBERS.items():
            features[name] = tf.cast(integers(len(features), *limits), tf.float32)
        for name, count in IDENTITIES.items():
            features[name] = integers(len(features), 0, count - 1)
        texts = VOCABULARIES | {name: count for name, (count, _) in HASHED.items()}
        for name, count in texts.items():
            categories = integers(len(features), 0, count - 1)
            features[name] = tf.gather(_vocabulary(name, count), categories)
        return features, integers(len(features), 0, 1)

    def create_dataset() -> Any:
        dataset = tf.data.Dataset.range(ROWS // batch_size).map(draw)
        return dataset.cache().repeat().prefetch(2)

    return create_dataset


def _vocabulary(name: str, count: int) -> list[str]:
    return [f"{name} {number}" for number in range(count)]
