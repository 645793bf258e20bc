"""The times at which a request passed from one stage of its processing to the next."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from server.metrics.family import Labels


class Stage(NamedTuple):
    """A stage of a request.

    Attributes:
      name: "queue", "decode", "run" or "encode".
      start_ns: when the stage began, in nanoseconds of `time.perf_counter_ns`.
      end_ns: when the stage ended, in nanoseconds of the same clock.
    """

    name: str
    start_ns: int
    end_ns: int


class Timeline:
    """The times at which one request passed from stage to stage, and the version that it used.

    The parts of the server that a request passes set the times, one after another, in any threads.
    The stages follow each other without a gap: a request waits until its turn comes (queue), its
    inputs are read (decode), it waits for its batch or for another process (queue), the model runs
    (run), and the response is built (encode).

    All times are in nanoseconds of `time.perf_counter_ns`. On Linux, all processes of a machine
    share this clock. A time that the request has not reached is 0.

    Attributes:
      started_ns: when the request began to arrive.
      queued_ns: when the request had arrived.
      decoding_ns: when the turn of the request came.
      decoded_ns: when the inputs were read.
      running_ns: when the run of the model began.
      ran_ns: when the run of the model ended.
      ended_ns: when the response was built.
      model: the name of the model that the request asks for.
      version: the version that answers, as text; empty until the version is known.
      signature: the name of the signature; empty until the version is known.
      metagraph: the tags of the metagraph that runs, such as "serve,tpu"; empty until the version
        is known.
      is_batched: whether the request has run in a batch.
    """

    __slots__ = (
        "decoded_ns",
        "decoding_ns",
        "ended_ns",
        "is_batched",
        "metagraph",
        "model",
        "queued_ns",
        "ran_ns",
        "running_ns",
        "signature",
        "started_ns",
        "version",
    )

    def __init__(self, started_ns: int = 0) -> None:
        """Create the timeline of a request that began to arrive at `started_ns`; 0 for now."""
        self.started_ns = started_ns or time.perf_counter_ns()
        self.queued_ns = self.decoding_ns = self.started_ns
        self.decoded_ns = self.running_ns = self.ran_ns = self.ended_ns = 0
        self.model = self.version = self.signature = self.metagraph = ""
        self.is_batched = False

    @property
    def labels(self) -> Labels:
        """The model, version, signature and metagraph."""
        return self.model, self.version, self.signature, self.metagraph

    def record_version(self, model: str, version: int, signature: str, metagraph: str) -> None:
        """Record the version and the signature that answer the request; see the attributes."""
        self.model, self.version = model, str(version)
        self.signature, self.metagraph = signature, metagraph

    def begin_decoding(self) -> None:
        """Record that the turn of the request has come."""
        self.decoding_ns = time.perf_counter_ns()

    def end_decoding(self) -> None:
        """Record that the inputs are decoded.

        The run counts as begun now, unless a later call of `begin_run` sets another time.
        """
        self.decoded_ns = self.running_ns = time.perf_counter_ns()

    def begin_run(self, running_ns: int) -> None:
        """Record that a batch with rows of the request begins to run; the first batch counts."""
        if not self.is_batched:
            self.is_batched = True
            self.running_ns = running_ns

    def end_run(self) -> None:
        """Record that the run has ended, unless the time is known already."""
        if not self.ran_ns:
            self.ran_ns = time.perf_counter_ns()

    def end(self) -> None:
        """Record that the request is answered."""
        self.ended_ns = time.perf_counter_ns()

    def pack_run(self) -> tuple[object, ...]:
        """Return the version and the times of the run, to be sent to another process."""
        return (*self.labels, self.running_ns, self.ran_ns)

    def unpack_run(self, packed: tuple[Any, ...]) -> None:
        """Take the version and the times of the run over from the process that ran the model."""
        *labels, self.running_ns, self.ran_ns = packed
        self.model, self.version, self.signature, self.metagraph = labels

    def stages(self) -> Iterator[Stage]:
        """Return the stages that a request has reached, in order; call `end` before.

        The wait after decoding is a stage only of a request that has waited there. The last stage
        of a request that failed ends with the request.
        """
        end = self.ended_ns
        yield Stage("queue", self.queued_ns, self.decoding_ns)
        yield Stage("decode", self.decoding_ns, self.decoded_ns or end)
        if not self.decoded_ns:
            return
        if self.running_ns > self.decoded_ns:
            yield Stage("queue", self.decoded_ns, self.running_ns)
        yield Stage("run", self.running_ns, self.ran_ns or end)
        if self.ran_ns:
            yield Stage("encode", self.ran_ns, end)

    @property
    def queue_seconds(self) -> float:
        """The time in queues, in seconds, of a request that has run."""
        waits_ns = self.decoding_ns - self.queued_ns + self.running_ns - self.decoded_ns
        return waits_ns / 1e9

    @property
    def run_seconds(self) -> float:
        """The time of the run, in seconds, of a request that has run."""
        return (self.ran_ns - self.running_ns) / 1e9

    @property
    def total_seconds(self) -> float:
        """The time from the arrival of the request to its answer, in seconds."""
        return (self.ended_ns - self.started_ns) / 1e9
