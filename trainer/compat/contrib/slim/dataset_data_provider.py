"""tf.contrib.slim.dataset_data_provider: reads records, and provides their items as tensors.

An item is what a decoder builds from a record, such as the image or the label.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.compat import contrib_missing_names
from trainer.compat.contrib.slim import parallel_reader
from trainer.compat.contrib.slim.dataset import Dataset

__all__ = ["DataProvider", "DatasetDataProvider"]


class DataProvider:
    """Holds the tensors of a record's items, such as "image" and "label", by the items' names."""

    def __init__(self, items_to_tensors: Mapping[str, Any], num_samples: int) -> None:
        self._items_to_tensors, self._num_samples = dict(items_to_tensors), num_samples

    def list_items(self) -> list[str]:
        """Return the names of the items."""
        return list(self._items_to_tensors)

    def num_samples(self) -> int:
        """Return the number of records in the dataset."""
        return self._num_samples

    def get(self, items: Sequence[str]) -> list[Any]:
        """Return the tensors of some items."""
        unknown = [item for item in items if item not in self._items_to_tensors]
        if unknown:
            raise InvalidSetting(
                f"there is no item {', '.join(unknown)}. The items are "
                f"{', '.join(self._items_to_tensors)}."
            )
        return [self._items_to_tensors[item] for item in items]


class DatasetDataProvider(DataProvider):
    """Reads the records of a `Dataset` with queue runners, and decodes them.

    Args:
      num_epochs: the number of passes over the files; None for passes without end.
      common_queue_capacity: the largest number of records in the queue that the readers fill.
    """

    def __init__(
        self,
        dataset: Dataset,
        num_readers: int = 1,
        reader_kwargs: Mapping[str, Any] | None = None,
        shuffle: bool = True,
        num_epochs: int | None = None,
        common_queue_capacity: int = 256,
        common_queue_min: int = 128,
        record_key: str = "record_key",
        seed: int | None = None,
        scope: str | None = None,
    ) -> None:
        key, record = parallel_reader.parallel_read(
            dataset.data_sources,
            reader_class=dataset.reader,
            num_epochs=num_epochs,
            num_readers=num_readers,
            reader_kwargs=reader_kwargs,
            shuffle=shuffle,
            capacity=common_queue_capacity,
            min_after_dequeue=common_queue_min,
            seed=seed,
            scope=scope,
        )
        names = dataset.decoder.list_items()
        if record_key in names:
            raise InvalidSetting(
                f"record_key is {record_key!r}, which is an item of the dataset. Give another name."
            )
        items = dict(zip(names, dataset.decoder.decode(record, names), strict=True))
        super().__init__({**items, record_key: key}, dataset.num_samples)


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.dataset_data_provider", __all__)
