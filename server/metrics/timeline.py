"""The times at which a request passed from one stage of its processing to the next."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from server.metrics.collectors import Labels


class Stage(NamedTuple):
    """A stage of the processing of a request.

    Attributes:
      start_ns: when the stage began, in nanoseconds of `time.perf_counter_ns`.
    """

    name: str
    start_ns: int
    end_ns: int


class Timeline:
    """The times at which a request passed from stage to stage, and the model version that ran it.

    The components of the server that handle the request record their times here one after the
    other, possibly in different threads.

    All times are in nanoseconds of `time.perf_counter_ns`.

    Attributes:
      started_ns: when the first bytes of the request arrived.
      version: the number of the version that runs, as text; empty until the version is known.
      signature: the name of the signature; empty until the version is known.
      metagraph: the tags of the metagraph that runs, such as "serve,tpu"; empty until the version
        is known.
      run_rows: the number of rows (examples) of the run: the rows of the batch without padding, or
        the rows of the request if the request ran alone; 0 until the number is known.
      place: the place of the request in its trace, which `Tracing` finds out once; None before.
      on_end: a function that is called with the timeline once the response is encoded; None to call
        nothing.
    """

    __slots__ = (
        "decoded_ns",
        "decoding_ns",
        "ended_ns",
        "is_batched",
        "metagraph",
        "place",
        "model",
        "on_end",
        "queued_ns",
        "ran_ns",
        "run_rows",
        "running_ns",
        "signature",
        "started_ns",
        "version",
    )

    def __init__(self, started_ns: int = 0) -> None:
        self.started_ns = started_ns or time.perf_counter_ns()
        self.queued_ns = self.decoding_ns = self.started_ns
        self.decoded_ns = self.running_ns = self.ran_ns = self.ended_ns = 0
        self.model = self.version = self.signature = self.metagraph = ""
        self.is_batched = False
        self.run_rows = 0
        self.place: object = None
        self.on_end: Callable[[Timeline], None] | None = None

    @property
    def labels(self) -> Labels:
        """The model, version, signature and metagraph, as label values of the metrics."""
        return self.model, self.version, self.signature, self.metagraph

    def record_version(self, model: str, version: int, signature: str, metagraph: str) -> None:
        """Set the attributes `model`, `version`, `signature` and `metagraph` of the timeline."""
        self.model, self.version = model, str(version)
        self.signature, self.metagraph = signature, metagraph

    def begin_decoding(self) -> None:
        """Record that the request's wait has ended, and the decoding of its inputs begins."""
        self.decoding_ns = time.perf_counter_ns()

    def end_decoding(self) -> None:
        """Record that the inputs are decoded.

        The method also sets the beginning of the run to the same time.
        """
        self.decoded_ns = self.running_ns = time.perf_counter_ns()

    def begin_run(self, running_ns: int, rows: int) -> None:
        """Record that a batch with rows (examples) of the request begins to run.

        If the request is split into several batches, only the first batch is recorded.

        Args:
          running_ns: the present time, in nanoseconds of `time.perf_counter_ns`.
        """
        if not self.is_batched:
            self.is_batched = True
            self.running_ns, self.run_rows = running_ns, rows

    def end_run(self) -> None:
        """Record that the run has ended, unless its end is already recorded."""
        if not self.ran_ns:
            self.ran_ns = time.perf_counter_ns()

    def end(self) -> None:
        """Record that the response to the request is encoded, and call `on_end`."""
        self.ended_ns = time.perf_counter_ns()
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self)

    def stages(self) -> Iterator[Stage]:
        """Yield the stages that the request has reached, in order; `end` must be called before.

        The second "queue" stage, after decoding, is yielded only if the request has waited there.
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
    def decode_ns(self) -> int:
        """The duration of the "decode" stage, in nanoseconds, of a request that has run."""
        return self.decoded_ns - self.decoding_ns

    @property
    def encode_ns(self) -> int:
        """The duration of the "encode" stage, in nanoseconds, of a request that has run.

        `end` must be called before.
        """
        return self.ended_ns - self.ran_ns

    @property
    def queue_seconds(self) -> float:
        """The time in both "queue" stages, in seconds, of a request that has run."""
        waits_ns = self.decoding_ns - self.queued_ns + self.running_ns - self.decoded_ns
        return waits_ns / 1e9

    @property
    def run_seconds(self) -> float:
        """The duration of the model's run, in seconds, of a request that has run."""
        return (self.ran_ns - self.running_ns) / 1e9

    @property
    def total_seconds(self) -> float:
        """The time from the arrival of the request to its answer, in seconds."""
        return (self.ended_ns - self.started_ns) / 1e9
