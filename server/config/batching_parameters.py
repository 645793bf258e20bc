"""The parameters of request batching.

They come from the file of --batching_parameters_file, or from a file in the directory of a model
version.

Source of names, defaults and checks: tensorflow_serving/servables/tensorflow,
session_bundle_config.proto and bundle_factory_util.cc.
"""

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from server.config import messages, textproto
from tpuserve.errors import InvalidConfig
from tpuserve.validation import check_integer

PER_MODEL_FILE = "batching_params.pbtxt"

# The name of the thread pool if a parameters file does not set thread_pool_name. Without a file,
# the name is the default of `BatchingParameters.thread_pool_name`.
_POOL_NAME_IN_FILES = "batch_threads"

TIMEOUT, CONTINUOUS = "timeout", "continuous"
POLICIES = (TIMEOUT, CONTINUOUS)
"""The values of `batching_policy`."""

# The largest batch size to compile when a model is loaded, if batches are padded to powers of two.
# This applies to runtimes that compile an executable for each batch size.
_MAX_COMPILED_POWER = 32


@dataclass(frozen=True)
class BatchingParameters:
    """The parameters of the batching queues of a model version, and of their threads.

    A row is one example of a request: one index of the first dimension of all inputs.

    Attributes:
      batching_policy: determines when waiting requests are run as a batch.
      max_batch_size: the largest number of rows of a request. It is also the largest number of rows
        of a batch, unless max_execution_batch_size applies.
      batch_timeout_micros: how long a batch waits for more requests, in microseconds. The policy
        "continuous" ignores this field.
      max_enqueued_batches: the largest number of batches that wait in a queue, including the batch
        that is not full yet.
      num_batch_threads: the largest number of batches of a version that run at the same time, and
        of requests that run alone. None means one for each CPU, but one batch with the policy
        "continuous".
      allowed_batch_sizes: increasing numbers of rows. A batch is padded to the smallest of these
        numbers that is not less than its own number of rows. Empty to allow any number.
      pad_variable_length_inputs: whether rows of different shapes are padded to a common shape, so
        that they can share a batch.
      max_execution_batch_size: the largest number of rows of a batch if large requests are split;
        None for max_batch_size.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int | None = None
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
        for name in ("max_batch_size", "max_enqueued_batches"):
            check_integer(name, getattr(self, name), least=1, error=InvalidConfig)
        check_integer(
            "num_batch_threads", self.num_batch_threads, least=1, optional=True, error=InvalidConfig
        )
        timeout = self.batch_timeout_micros
        check_integer("batch_timeout_micros", timeout, least=0, error=InvalidConfig)
        if not 0 < self.largest_batch <= self.max_batch_size:
            raise InvalidConfig(
                f"max_execution_batch_size is {self.largest_batch} and max_batch_size "
                f"{self.max_batch_size}. Give a positive number that is not above max_batch_size."
            )
        self._check_allowed_batch_sizes()

    @property
    def largest_batch(self) -> int:
        """The largest number of rows (examples) in a batch."""
        if self.enable_large_batch_splitting and self.max_execution_batch_size is not None:
            return self.max_execution_batch_size
        return self.max_batch_size

    @property
    def compiled_sizes(self) -> tuple[int, ...]:
        """The batch sizes to compile when a model is loaded.

        They are for a runtime that compiles an executable for each batch size, such as XLA.
        """
        sizes = self.padded_to_powers().allowed_batch_sizes
        if sizes == self.allowed_batch_sizes:
            return sizes
        return tuple(size for size in sizes if size <= _MAX_COMPILED_POWER)

    def padded_to_powers(self) -> "BatchingParameters":
        """Return parameters with few batch sizes, for a runtime that compiles each batch size.

        With the policy "continuous" and no allowed batch sizes, the result allows the powers of two
        and the size of the largest batch.
        """
        if self.allowed_batch_sizes or self.batching_policy != CONTINUOUS:
            return self
        largest = self.largest_batch
        powers = (1 << exponent for exponent in range((largest - 1).bit_length()))
        return dataclasses.replace(self, allowed_batch_sizes=(*powers, largest))

    def padded_size(self, size: int) -> int:
        """Return the number of rows (examples), with padding, of a batch of `size` rows."""
        if not size:
            return 0  # Do not pad an empty batch: it has no row that padding could repeat.
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


OPTIONAL = BatchingParameters(
    # Larger batches save little more, and need memory for all of their rows at once.
    max_batch_size=32,
    # The limits of the model's queue decide when requests are refused.
    max_enqueued_batches=1 << 20,
    batching_policy=CONTINUOUS,
)
"""The parameters of batches that nobody has asked for."""


def read_batching_parameters(path: Path) -> BatchingParameters:
    """Read a file with a BatchingParameters message in protobuf's text form."""
    message = textproto.read_message(path, messages.new_message("BatchingParameters"))
    try:
        return from_message(message)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error


def from_message(message: Any) -> BatchingParameters:
    """Convert a BatchingParameters message; unset fields take their defaults."""
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
