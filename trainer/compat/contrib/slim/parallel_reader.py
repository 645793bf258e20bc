"""tf.contrib.slim.parallel_reader: functions that read the records of many files at a time.

Queue runners, the threads of TensorFlow 1's input pipelines, read the files.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.compat import contrib_missing_names

__all__ = ["ParallelReader", "get_data_files", "parallel_read", "single_pass_read"]

v1 = tf.compat.v1


class ParallelReader(tf.compat.v1.ReaderBase):
    """A reader that returns the records of several readers, which fill a common queue.

    Args:
      reader_class: the class of the readers, such as tf.compat.v1.TFRecordReader.
    """

    def __init__(
        self,
        reader_class: Callable[..., Any],
        common_queue: Any,
        num_readers: int = 4,
        reader_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if list(common_queue.dtypes) != [tf.string, tf.string]:
            raise InvalidType(
                f"common_queue has the dtypes {[dtype.name for dtype in common_queue.dtypes]}. "
                f"A record has a key and a value: give a queue of [tf.string, tf.string]."
            )
        self._readers = [reader_class(**(reader_kwargs or {})) for _ in range(num_readers)]
        self._common_queue = common_queue

    @property
    def num_readers(self) -> int:
        """The number of readers."""
        return len(self._readers)

    @property
    def common_queue(self) -> Any:
        """The queue that the readers fill."""
        return self._common_queue

    def read(self, queue: Any, name: str | None = None) -> Any:
        """Return the key and the value of the next record, string scalars."""
        self._fill_common_queue(queue)
        return self._common_queue.dequeue(name=name)

    def read_up_to(self, queue: Any, num_records: Any, name: str | None = None) -> Any:
        """Return the keys and the values of the next records, two string tensors [records].

        Args:
          num_records: the largest number of records; fewer are returned at the end of the input.
        """
        self._fill_common_queue(queue)
        return self._common_queue.dequeue_up_to(num_records, name=name)

    def num_records_produced(self, name: str | None = None) -> Any:
        """Return the number of records that all readers have read, int64 []."""
        return tf.add_n([reader.num_records_produced() for reader in self._readers], name=name)

    def num_work_units_completed(self, name: str | None = None) -> Any:
        """Return the total number of files that the readers have finished, int64 []."""
        return tf.add_n([reader.num_work_units_completed() for reader in self._readers], name=name)

    def _fill_common_queue(self, queue: Any) -> None:
        enqueue_ops = [self._common_queue.enqueue(reader.read(queue)) for reader in self._readers]
        v1.train.add_queue_runner(v1.train.QueueRunner(self._common_queue, enqueue_ops))


def get_data_files(data_sources: str | Sequence[str]) -> list[str]:
    """Return the paths of the files that patterns match, in the order of the patterns.

    The paths that a single pattern matches are sorted.

    Args:
      data_sources: a path, a pattern such as "/data/train*", or a list of them.
    """
    patterns = [data_sources] if isinstance(data_sources, str) else list(data_sources)
    files = [file for pattern in patterns for file in sorted(tf.io.gfile.glob(pattern))]
    if not files:
        raise InvalidSetting(f"no file matches {', '.join(patterns)}. Give the paths of files.")
    return files


def parallel_read(
    data_sources: str | Sequence[str],
    reader_class: Callable[..., Any],
    num_epochs: int | None = None,
    num_readers: int = 4,
    reader_kwargs: Mapping[str, Any] | None = None,
    shuffle: bool = True,
    dtypes: Sequence[Any] | None = None,
    capacity: int = 256,
    min_after_dequeue: int = 128,
    seed: int | None = None,
    scope: str | None = None,
) -> list[Any]:
    """Build ops that read the records of files with several readers at a time.

    Args:
      data_sources: the path of a file, a pattern such as "/data/train*", or a list of them.
      reader_class: the class of the readers, such as tf.compat.v1.TFRecordReader.
      num_epochs: the number of passes over the files; None for passes without end.
      dtypes: the dtypes of a record's key and value; both are strings by default.
      capacity: the largest number of records in the queue.
    """
    files = get_data_files(data_sources)
    dtypes = list(dtypes or [tf.string, tf.string])
    with v1.name_scope(scope, "parallel_read"):
        paths = v1.train.string_input_producer(
            files, num_epochs=num_epochs, shuffle=shuffle, seed=seed, name="filenames"
        )
        shapes: list[Any] = [[] for _ in dtypes]
        if shuffle:
            queue = tf.queue.RandomShuffleQueue(
                capacity, min_after_dequeue, dtypes, shapes, seed=seed, name="common_queue"
            )
        else:
            queue = tf.queue.FIFOQueue(capacity, dtypes, shapes, name="common_queue")
        reader = ParallelReader(reader_class, queue, num_readers, reader_kwargs)
        return list(reader.read(paths, name="read"))


def single_pass_read(
    data_sources: str | Sequence[str],
    reader_class: Callable[..., Any],
    reader_kwargs: Mapping[str, Any] | None = None,
    scope: str | None = None,
) -> list[Any]:
    """Build ops that read each record of files once, in the order of the files.

    Args:
      data_sources: the path of a file, a pattern such as "/data/train*", or a list of them.
      reader_class: the class of the reader, such as tf.compat.v1.TFRecordReader.
    """
    files = get_data_files(data_sources)
    with v1.name_scope(scope, "single_pass_read"):
        paths = v1.train.string_input_producer(
            files, num_epochs=1, shuffle=False, capacity=1, name="filenames"
        )
        return list(reader_class(**(reader_kwargs or {})).read(paths))


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.parallel_reader", __all__)
