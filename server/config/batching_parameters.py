"""Parameters of request batching, from --batching_parameters_file or from a model's own file.

Source of names, defaults and checks: tensorflow_serving/servables/tensorflow,
session_bundle_config.proto and bundle_factory_util.cc.
"""

import dataclasses
import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from server.config import messages, textproto
from tpuserve.errors import InvalidConfig

PER_MODEL_FILE = "batching_params.pbtxt"

# The name of the thread pool where a parameters file gives none. Without a file, the name is the
# default of `BatchingParameters.thread_pool_name`.
_POOL_NAME_IN_FILES = "batch_threads"

TIMEOUT, CONTINUOUS = "timeout", "continuous"
POLICIES = (TIMEOUT, CONTINUOUS)
"""The values of `batching_policy`."""

# If batches are padded to powers of two, a runtime that compiles each batch size compiles the
# powers up to this number at load. A larger batch size is compiled when the first such batch runs.
_MAX_COMPILED_POWER = 32


@dataclass(frozen=True)
class BatchingParameters:
    """The parameters of the batching queues of a version, and of the threads that they share.

    Attributes:
      batching_policy: "timeout", TensorFlow Serving's policy, or "continuous", where all requests
        that wait when a run ends form a batch. A file without this field means "timeout"; a server
        without a file uses "continuous".
      max_batch_size: the largest number of rows of a request, and of a batch where requests are
        not split.
      batch_timeout_micros: how long a batch waits for more requests, in microseconds. The policy
        "continuous" ignores this field.
      max_enqueued_batches: how many batches may wait in a queue, including the batch that is not
        full yet. The policy "continuous" lets as many rows wait as this number of full batches has.
      num_batch_threads: how many batches of a version run at the same time. With the policy
        "continuous", the server may choose a smaller number.
      thread_pool_name: the name of the threads that run batches, in metrics.
      allowed_batch_sizes: numbers of rows, increasing; a batch is padded to the smallest of them
        that holds it. Empty to allow any number.
      pad_variable_length_inputs: whether inputs of different shapes are padded to one shape.
      enable_large_batch_splitting: whether a request may run in several batches.
      max_execution_batch_size: the largest number of rows of a batch where requests are split;
        None for max_batch_size.

    Raises:
      InvalidConfig: batching cannot work with a value.
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
    batching_policy: str = TIMEOUT

    def __post_init__(self) -> None:
        """Check every value, and the values against each other."""
        if self.batching_policy not in POLICIES:
            raise InvalidConfig(
                f"batching_policy is {self.batching_policy!r}. Give {' or '.join(POLICIES)}."
            )
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
                f"{self.max_batch_size}. Give a positive number that is not above max_batch_size."
            )
        self._check_allowed_batch_sizes()

    @property
    def largest_batch(self) -> int:
        """The largest number of rows in a batch."""
        if self.enable_large_batch_splitting and self.max_execution_batch_size is not None:
            return self.max_execution_batch_size
        return self.max_batch_size

    @property
    def compiled_sizes(self) -> tuple[int, ...]:
        """The batch sizes to compile at load, for a runtime that compiles each batch size."""
        sizes = self.padded_to_powers().allowed_batch_sizes
        if sizes == self.allowed_batch_sizes:
            return sizes
        return tuple(size for size in sizes if size <= _MAX_COMPILED_POWER)

    def padded_to_powers(self) -> "BatchingParameters":
        """Return parameters for a runtime that compiles each batch size.

        With the policy "continuous", whose batches have any size, batches are padded to the next
        power of two. The padding does not change outputs: this policy batches a signature only if
        the rows of its batches do not depend on each other.
        """
        if self.allowed_batch_sizes or self.batching_policy != CONTINUOUS:
            return self
        largest = self.largest_batch
        powers = (1 << exponent for exponent in range((largest - 1).bit_length()))
        return dataclasses.replace(self, allowed_batch_sizes=(*powers, largest))

    def padded_size(self, size: int) -> int:
        """Return the number of rows that a batch of `size` rows runs with."""
        if not size:
            return 0  # Do not pad an empty batch: it has no row to repeat.
        return next((allowed for allowed in self.allowed_batch_sizes if allowed >= size), size)

    def _check_allowed_batch_sizes(self) -> None:
        sizes = self.allowed_batch_sizes
        if not sizes:
            return
        if sizes[0] < 1 or any(size >= next_size for size, next_size in pairwise(sizes)):
            raise InvalidConfig(
                f"allowed_batch_sizes are {list(sizes)}. Give positive numbers that increase."
            )
        if sizes[-1] != self.largest_batch:
            raise InvalidConfig(
                f"Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
                f"{sizes[-1]}; expected {self.largest_batch}"
            )


def read_batching_parameters(path: Path) -> BatchingParameters:
    """Read a file with a BatchingParameters message in text form.

    Raises:
      InvalidConfig: the file cannot be read or parsed, or has a value that batching cannot work
        with.
    """
    message = textproto.read_message(path, messages.new_message("BatchingParameters"))
    try:
        return from_message(message)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error


def from_message(message: Any) -> BatchingParameters:
    """Convert a BatchingParameters message; unset fields take their defaults.

    Raises:
      InvalidConfig: the message has a value that batching cannot work with.
    """
    values = {
        field.name: getattr(message, field.name).value
        for field, _ in message.ListFields()
        if field.message_type is not None
    }
    values.setdefault("thread_pool_name", _POOL_NAME_IN_FILES)
    return BatchingParameters(
        batching_policy=message.batching_policy or TIMEOUT,
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        pad_variable_length_inputs=message.pad_variable_length_inputs,
        **values,
    )
