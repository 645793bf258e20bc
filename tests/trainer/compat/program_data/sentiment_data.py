"""Writes sentences with their sentiments as the files of the program bert_like/."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

WORD_PIECES = [
    "[PAD]",
    "[UNK]",
    "[unused0]",
    "[CLS]",
    "[SEP]",
    "un",
    "##happy",
    "happy",
    "sun",
    "##ny",
    "rain",
    ".",
]
UNUSED_PIECE = WORD_PIECES.index("[unused0]")
HIDDEN = 16
_WORDS = {"glad": ["happy", "sun", "sunny"], "sad": ["unhappy", "rain", "rainy"]}
_LABELS = ("sad", "glad")


@dataclass(frozen=True)
class SentimentData:
    """The files that the program reads.

    Attributes:
      directory: the directory of train.tsv, dev.tsv, test.tsv, vocab.txt and config.json.
      dev_labels: the label, 0 or 1, of each row of dev.tsv; test.tsv has the same sentences.
    """

    directory: Path
    dev_labels: list[int]

    @property
    def flags(self) -> list[str]:
        """The program's flags that name the files."""
        files = {"bert_config_file": "config.json", "vocab_file": "vocab.txt"}
        named = [f"--{flag}={self.directory / file}" for flag, file in files.items()]
        return [f"--data_dir={self.directory}", *named]


def write_data(directory: Path) -> SentimentData:
    """Write 64 sentences for training and 13 for evaluation, two of them with wrong labels."""
    directory.mkdir()
    rows = [
        (f"{_WORDS[label][first]} {_WORDS[label][second]} .", label)
        for first in range(3)
        for second in range(3)
        for label in _LABELS
    ]
    train = [rows[number % len(rows)] for number in range(64)]
    # The wrong labels come last, next to the padding of the final batch.
    dev = rows[:11] + [(text, _LABELS[label == "sad"]) for text, label in rows[11:13]]
    _write_rows(directory / "train.tsv", train)
    _write_rows(directory / "dev.tsv", dev)
    _write_rows(directory / "test.tsv", [row[:1] for row in dev])
    (directory / "vocab.txt").write_text("\n".join(WORD_PIECES))
    sizes = {"vocab_size": len(WORD_PIECES), "hidden_size": HIDDEN, "num_hidden_layers": 1}
    (directory / "config.json").write_text(json.dumps(sizes))
    return SentimentData(directory, [_LABELS.index(label) for _, label in dev])


def read_records(path: Path) -> dict[str, Any]:
    """Return the features in a file that the program wrote: name → array of [rows, ...]."""
    columns: dict[str, list[Any]] = {}
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        for name, feature in tf.train.Example.FromString(record).features.feature.items():
            columns.setdefault(name, []).append(list(feature.int64_list.value))
    del columns["is_real_example"]
    features = {name: np.array(rows, np.int32) for name, rows in columns.items()}
    return features | {"label_ids": features["label_ids"][:, 0]}


def _write_rows(path: Path, rows: Sequence[tuple[str, ...]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
