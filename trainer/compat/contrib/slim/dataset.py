"""tf.contrib.slim.dataset: the description of files that a DatasetDataProvider reads."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.compat.contrib_names import missing_names

__all__ = ["Dataset"]


class Dataset:
    """The files of a dataset, with what reads and decodes them.

    Attributes:
      data_sources: a path, a pattern, or a list of them.
      reader: the class of the reader, such as tf.compat.v1.TFRecordReader.
      decoder: has list_items() and decode(record, items), such as a TFExampleDecoder.
      num_samples: the number of records.
      items_to_descriptions: name of an item → its description.
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
        """Store the settings; further arguments, such as num_classes, become attributes."""
        self.data_sources, self.reader, self.decoder = data_sources, reader, decoder
        self.num_samples, self.items_to_descriptions = num_samples, items_to_descriptions
        for name, value in kwargs.items():
            setattr(self, name, value)


__getattr__ = missing_names.getattr_for("tf.contrib.slim.dataset", __all__)
