"""Runs a batch: one call of the model for several requests."""

import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias

from server.batching import merge
from server.batching.scheduler import Clock
from server.batching.tasks import Batch, Piece
from server.config.batching_parameters import BatchingParameters
from server.metrics import Metrics
from server.servables.servable import Array
from tpuserve.errors import InvalidInput, ModelExecutionError, TpuserveError
from tpuserve.saved_model.signature import Signature

logger = logging.getLogger(__name__)


Run: TypeAlias = Callable[[Mapping[str, Array], float | None], Mapping[str, Array]]
"""Inputs by alias, and the milliseconds that it may take or None for any → outputs by name."""


class Execution:
    """Runs the batches of requests that one run of a model can answer."""

    def __init__(
        self,
        name: str,
        run: Run,
        signature: Signature,
        parameters: BatchingParameters,
        metrics: Metrics,
        pool_name: str,
        clock: Clock,
    ) -> None:
        """Takes what to run, and how batches are to be padded.

        Args:
          name: of it, in the server's log.
          signature: of the inputs.
          pool_name: of the threads, in metrics.
        """
        self._name = name
        self._model_run = run
        self._signature = signature
        self._parameters = parameters
        self._metrics = metrics
        self._pool_name = pool_name
        self._clock = clock

    def __call__(self, batch: Batch) -> None:
        """Runs a batch and hands its outputs, or an error, to each of its tasks."""
        now = self._clock()
        pieces = [piece for piece in batch.pieces if self._is_wanted(piece, now)]
        if not pieces:
            return
        alone = [[piece] for piece in pieces]
        if len(pieces) > 1 and not merge.have_same_types([piece.inputs for piece in pieces]):
            groups = alone
        else:
            groups = [pieces]
        for group in groups:
            try:
                self._run(group, now)
            except InvalidInput as error:
                if len(group) == 1:
                    _fail(group, error)
                    continue
                # Whose input it is does not show; its neighbours are to be answered all the same.
                for each in alone:
                    self._run_alone(each)
            except TpuserveError as error:
                _fail(group, error)
            except Exception as error:
                logger.exception("signature %s has failed", self._name)
                _fail(group, ModelExecutionError(f"the model has failed: {error}"))

    def _run_alone(self, piece: list[Piece]) -> None:
        try:
            self._run(piece, self._clock())
        except TpuserveError as error:
            _fail(piece, error)

    def _is_wanted(self, piece: Piece, now: float) -> bool:
        task = piece.task
        self._metrics.queued(self._pool_name, (now - task.enqueued) * 1e6)
        if task.is_too_late(now):
            task.fail_too_late()
        return not task.is_done

    def _run(self, pieces: list[Piece], now: float) -> None:
        sizes = [piece.size for piece in pieces]
        size = sum(sizes)
        inputs = [piece.inputs for piece in pieces]
        fed = merge.join(inputs, size, self._signature, self._parameters)
        run_size = self._parameters.padded_size(size)
        self._metrics.batch_run(run_size, run_size - size)
        outputs = self._model_run(fed, _time_left(pieces, now))
        parts = list(merge.split(outputs, sizes, run_size))
        for piece, part in zip(pieces, parts, strict=True):
            piece.succeed(part)


def _time_left(pieces: list[Piece], now: float) -> float | None:
    # What one request has no time for another may have.
    deadlines = [piece.task.deadline for piece in pieces]
    latest = max((each for each in deadlines if each is not None), default=None)
    return None if latest is None or None in deadlines else (latest - now) * 1000


def _fail(pieces: list[Piece], error: TpuserveError) -> None:
    for piece in pieces:
        piece.task.fail(error)
