"""Loads a version: reads its model, warms the model up, and creates the runner of its requests."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from server.servables.direct_runner import DirectRunner
from server.servables.servable import InferenceRunner, Load, Model, Servable
from tpuserve.errors import Code, CodedError, TpuserveError

MakeRunner: TypeAlias = Callable[[Model, Path, str], InferenceRunner]
WarmUpModel: TypeAlias = Callable[[Model, Path], None]

# The codes of errors that every load of the same files would raise again. A load is not retried
# after such an error. Errors with other codes can be transient.
_PERMANENT = frozenset(
    {
        Code.INVALID_ARGUMENT,
        # A load that has exceeded its time limit (DEADLINE_EXCEEDED) would exceed it again.
        Code.DEADLINE_EXCEEDED,
        Code.NOT_FOUND,
        Code.PERMISSION_DENIED,
        Code.FAILED_PRECONDITION,
        Code.UNIMPLEMENTED,
        Code.DATA_LOSS,
    }
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retries:
    """The number and the interval of the retries of a failed load.

    Attributes:
      interval_seconds: the time between two tries, in seconds.
    """

    count: int = 0
    interval_seconds: float = 60


@dataclass(frozen=True)
class ServableLoader:
    """Loads versions, so that they can answer requests.

    Attributes:
      warm_up: runs warm-up requests on the model; None for no warm-up.
      find_load: takes a model's name, and returns the function that loads its versions. This
        function replaces `load`. None to use `load` for all models.
    """

    load: Load
    make_runner: MakeRunner = lambda model, directory, name: DirectRunner(model)
    warm_up: WarmUpModel | None = None
    find_load: Callable[[str], Load] | None = None

    def load_servable(self, servable: Servable, directory: Path) -> tuple[Model, InferenceRunner]:
        """Load the model of a version, warm it up and create its runner."""
        try:
            load = self.load if self.find_load is None else self.find_load(servable.name)
            model = load(directory)
            try:
                return model, self._warm_up_and_make_runner(servable, model, directory)
            except BaseException:
                model.close()
                raise
        except TpuserveError:
            raise
        except Exception as error:
            logger.exception("%s: cannot be loaded", servable)
            raise CodedError(
                f"{servable} cannot be loaded from {directory}: {_one_line(error)}", Code.INTERNAL
            ) from error

    def _warm_up_and_make_runner(
        self, servable: Servable, model: Model, directory: Path
    ) -> InferenceRunner:
        # Warm the model up before the version becomes available, because the first runs of a model
        # are slow.
        if self.warm_up is not None:
            self.warm_up(model, directory)
        return self.make_runner(model, directory, str(servable))


def is_retriable(error: TpuserveError) -> bool:
    """Return whether a load that has failed with this error can succeed with the same files."""
    return error.code not in _PERMANENT


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
