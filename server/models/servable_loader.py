"""How a version becomes ready: its model loaded, given a runner and warmed up."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from server.servables.servable import Load, Model, Runner, Servable
from tpuserve.errors import Code, ModelLoadError, TpuserveError

MakeRunner: TypeAlias = Callable[[Model, Path, str], Runner]
WarmUp: TypeAlias = Callable[[Model, Path], None]

# What the same files will do again, however often they are read; all others may pass.
_FINAL = frozenset(
    {
        Code.INVALID_ARGUMENT,
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
    """How often a load that has failed is tried again.

    Attributes:
      count: after the first try.
      interval_seconds: between two tries.
    """

    count: int = 0
    interval_seconds: float = 60


@dataclass(frozen=True)
class Loading:
    """What is done to a version before it is available.

    Attributes:
      load: a version's directory → its model.
      make_runner: the model, its directory and its name → what runs its requests.
      warm_up: runs requests on the model; None for none.
    """

    load: Load
    make_runner: MakeRunner = lambda model, directory, name: model
    warm_up: WarmUp | None = None

    def prepare(self, servable: Servable, directory: Path) -> tuple[Model, Runner]:
        """A version's model and its runner, ready for requests.

        Raises:
          TpuserveError: it cannot be loaded or warmed up; nothing of it stays in memory.
        """
        try:
            model = self.load(directory)
            try:
                return model, self._ready(servable, model, directory)
            except BaseException:
                model.close()
                raise
        except TpuserveError:
            raise
        except Exception as error:
            logger.exception("%s: cannot be loaded", servable)
            raise ModelLoadError(
                f"{servable} cannot be loaded from {directory}: {_line(error)}"
            ) from error

    def _ready(self, servable: Servable, model: Model, directory: Path) -> Runner:
        # Warm before it is available, so that no request meets a cold model.
        if self.warm_up is not None:
            self.warm_up(model, directory)
        return self.make_runner(model, directory, str(servable))


def may_pass(error: TpuserveError) -> bool:
    """Whether the same files may load at another time."""
    return error.code not in _FINAL


def _line(error: Exception) -> str:
    # Errors are told in one line each.
    return " ".join(str(error).split()) or type(error).__name__
