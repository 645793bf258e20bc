"""tf.contrib.slim.dataset: Dataset, which describes the files that a DatasetDataProvider reads."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.compat import contrib_missing_names

__all__ = ["Dataset"]


class Dataset:
    """Describes the files of a dataset, and how to read and decode their records.

    Attributes:
      reader: the class that reads a file, such as tf.compat.v1.TFRecordReader.
      decoder: an object with the methods list_items() and decode(record, items), such as a
        TFExampleDecoder.
      items_to_descriptions: name of an item that the decoder returns, such as "image" → a text that
        describes the item.
    """

    def __init__(
        self,
        data_sources: str | Sequence[str],
        reader: Any,
        decoder: Any,
        num_samples: int,
        items_to_descriptions: Mapping[str, str],
        **kwargs: Any,
    ) -> None:
        self.data_sources, self.reader, self.decoder = data_sources, reader, decoder
        self.num_samples, self.items_to_descriptions = num_samples, items_to_descriptions
        for name, value in kwargs.items():
            setattr(self, name, value)


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.dataset", __all__)
