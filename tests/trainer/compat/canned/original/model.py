"""The model and the rows of the files in this folder, for TensorFlow 2.15 and for tpuserve."""

from pathlib import Path
from typing import Any

import tensorflow as tf

DIRECTORY = Path(__file__).parent
LABELS = ["<=50K", ">50K"]
# Two rows that the files have predictions of, and six more.
ROWS: dict[str, Any] = {
    "age": [[25.0], [38.0], [28.0], [44.0], [18.0], [34.0], [63.0], [24.0]],
    "hours": [[40.0], [50.0], [40.0], [40.0], [30.0], [30.0], [32.0], [40.0]],
    "work": [
        ["private"],
        ["self"],
        ["state"],
        ["private"],
        ["?"],
        ["private"],
        ["self"],
        ["state"],
    ],
}
INCOMES = [[LABELS[income]] for income in (0, 1, 1, 1, 0, 0, 1, 0)]


def arguments() -> dict[str, Any]:
    """Return the arguments of DNNLinearCombinedClassifier, without optimizers and RunConfig."""
    column = tf.feature_column
    age = column.numeric_column("age")
    hours = column.numeric_column("hours", normalizer_fn=lambda hours: hours / 40.0 - 1.0)
    work = column.categorical_column_with_vocabulary_list(
        "work", ["private", "self", "state"], num_oov_buckets=1
    )
    decade = column.bucketized_column(age, [20.0, 30.0, 40.0])
    return {
        "linear_feature_columns": [work, column.crossed_column([decade, "work"], 10)],
        "dnn_feature_columns": [hours, column.embedding_column(work, dimension=2)],
        "dnn_hidden_units": [4, 3],
        "label_vocabulary": LABELS,
    }


def dataset() -> Any:
    """Return the rows as one batch."""
    return tf.data.Dataset.from_tensors((ROWS, INCOMES))
