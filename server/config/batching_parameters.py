"""How requests are batched, as a parameters file says it.

Source of names, defaults and checks: tensorflow_serving/servables/tensorflow,
session_bundle_config.proto and bundle_factory_util.cc.
"""

import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from server.config import messages, textproto
from tpuserve.errors import InvalidConfig

PER_MODEL_FILE = "batching_params.pbtxt"

# The name where a file gives none; where there is no file it is the default below.
_POOL_NAME_IN_FILES = "batch_threads"


@dataclass(frozen=True)
class BatchingParameters:
    """The parameters of one queue of requests, and of the threads that all queues share.

    Attributes:
      max_batch_size: the rows that a request may have, and a batch where none is split.
      batch_timeout_micros: how long a batch is kept open for more requests.
      max_enqueued_batches: how many may wait, the open one included.
      num_batch_threads: how many batches run at a time, in the whole server.
      thread_pool_name: of those threads, in metrics.
      allowed_batch_sizes: in rows, increasing; a batch is padded to the least that holds it.
        Empty for any size.
      pad_variable_length_inputs: whether rows of different sizes are padded to go together.
      enable_large_batch_splitting: whether a request may be run in several batches.
      max_execution_batch_size: the rows of a batch where requests are split; None for
        max_batch_size.

    Raises:
      InvalidConfig: a value that nothing can be batched by.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    thread_pool_name: str = "model_server_batch_threads"
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int | None = None

    def __post_init__(self) -> None:
        """Checks every value, and the values against each other."""
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name} is {getattr(self, name)}. Give a positive number.")
        if self.batch_timeout_micros < 0:
            raise InvalidConfig(
                f"batch_timeout_micros is {self.batch_timeout_micros}. Give 0 or more."
            )
        if not 0 < self.largest_batch <= self.max_batch_size:
            raise InvalidConfig(
                f"max_execution_batch_size is {self.largest_batch} and max_batch_size "
                f"{self.max_batch_size}. Give a positive number that is not above it."
            )
        self._check_allowed_batch_sizes()

    @property
    def largest_batch(self) -> int:
        """The rows that a batch may have when it is run."""
        if self.enable_large_batch_splitting and self.max_execution_batch_size is not None:
            return self.max_execution_batch_size
        return self.max_batch_size

    def padded(self, size: int) -> int:
        """The rows that a batch of a size is run with."""
        if not size:
            return 0  # there is no row that could be repeated
        return next((each for each in self.allowed_batch_sizes if each >= size), size)

    def _check_allowed_batch_sizes(self) -> None:
        sizes = self.allowed_batch_sizes
        if not sizes:
            return
        if sizes[0] < 1 or any(one >= next_one for one, next_one in pairwise(sizes)):
            raise InvalidConfig(
                f"allowed_batch_sizes are {list(sizes)}. Give positive numbers that increase."
            )
        if sizes[-1] != self.largest_batch:
            raise InvalidConfig(
                f"Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
                f"{sizes[-1]}; expected {self.largest_batch}"
            )


def read(path: Path) -> BatchingParameters:
    """The parameters in a file: a BatchingParameters message in text form.

    Raises:
      InvalidConfig: it cannot be read or parsed, or holds an impossible value.
    """
    message = messages.new("BatchingParameters")
    return from_message(textproto.parse(textproto.read(path), message, path))


def from_message(message: Any) -> BatchingParameters:
    """The parameters in a BatchingParameters message; what it leaves out is as by default.

    Raises:
      InvalidConfig: it holds an impossible value.
    """
    found = {
        each.name: getattr(message, each.name).value
        for each, _ in message.ListFields()
        if each.message_type is not None
    }
    found.setdefault("thread_pool_name", _POOL_NAME_IN_FILES)
    return BatchingParameters(
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        pad_variable_length_inputs=message.pad_variable_length_inputs,
        **found,
    )
