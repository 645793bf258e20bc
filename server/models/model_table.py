"""What a Residency knows: the versions of the models on their way into memory, and their sizes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from server.config.byte_size import format_bytes
from server.servables.servable import Servable
from tpuserve.errors import Code, CodedError, TpuserveError


class Phase(Enum):
    """Where a version is on its way into memory and out of it."""

    PENDING = "pending"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"


@dataclass(eq=False)
class Version:
    """A version that the manager wants to load or has loaded.

    Attributes:
      start: begins the load.
      refuse: ends the version with an error instead.
      num_bytes: the memory that the version needs, estimated; 0 before it is known.
    """

    start: Callable[[], None]
    refuse: Callable[[TpuserveError], None]
    phase: Phase = Phase.PENDING
    num_bytes: int = 0


@dataclass(eq=False)
class Model:
    """The versions of a model.

    Attributes:
      is_open: whether requests run. It stays true while a new version loads beside the old one.
      is_wanted: whether a request has asked for the model since it was last in memory.
      callers: the number of threads that wait in `Residency.load`.
      failure: why the last load has failed.
      must_retry: whether a request has asked for the model after its failure.
      retry_at: when a request may try the next load, in seconds of the clock.
      opened_at: when the model was loaded, in seconds of the clock.
    """

    versions: dict[Servable, Version] = field(default_factory=dict)
    is_open: bool = False
    is_wanted: bool = False
    callers: int = 0
    failure: TpuserveError | None = None
    must_retry: bool = False
    retry_at: float = 0.0
    opened_at: float = 0.0

    def find(self, *phases: Phase) -> dict[Servable, Version]:
        """Return the versions in any of these phases."""
        return {key: each for key, each in self.versions.items() if each.phase in phases}

    def count_bytes(self) -> int:
        """Return the bytes of the versions in memory, and of those that load or unload."""
        return sum(
            version.num_bytes
            for version in self.versions.values()
            if version.phase is not Phase.PENDING
        )


class ModelTable:
    """The models of a Residency. Hold `condition` while using it; `is_lazy` needs no lock.

    Attributes:
      limit_bytes: the memory that all loaded versions may need, in bytes; 0 for no limit.
      wishes: the models with versions to load, in the order of their first requests. The dictionary
        is used as an ordered set, as is `changed`.
      changed: the models whose versions have changed since their queue was last held or opened.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.lazy: frozenset[str] = frozenset()
        self.models: dict[str, Model] = {}
        self.wishes: dict[str, None] = {}
        self.changed: dict[str, None] = {}
        self.condition = threading.Condition(threading.Lock())

    def is_lazy(self, name: str) -> bool:
        """Return whether a model is loaded by a request, and may be unloaded for another model."""
        return name in self.lazy

    def count_used(self) -> int:
        """Return the bytes of all versions in memory, and of those that load or unload."""
        return sum(model.count_bytes() for model in self.models.values())

    def count_coming(self) -> int:
        """Return the bytes that will be free when the unloads in progress have ended."""
        return sum(
            version.num_bytes
            for model in self.models.values()
            for version in model.find(Phase.UNLOADING).values()
        )

    def count_pinned(self) -> int:
        """Return the bytes of the models that stay in memory."""
        return sum(
            model.count_bytes() for name, model in self.models.items() if not self.is_lazy(name)
        )

    def too_large_error(self, name: str, num_bytes: int) -> TpuserveError:
        """Return the error of a model that needs more than the limit alone."""
        return self._memory_error(name, num_bytes, "which is more than", "Raise the limit.")

    def no_room_error(self, name: str, num_bytes: int) -> TpuserveError:
        """Return the error of a model for which no other model can be unloaded."""
        return self._memory_error(
            name,
            num_bytes,
            f"and models that stay in memory use {format_bytes(self.count_pinned())} of",
            "Unload one of them, raise the limit, or serve with --lazy_load.",
        )

    def busy_error(self, name: str, num_bytes: int) -> TpuserveError:
        """Return the error of a model for which no other model became idle in time."""
        return self._memory_error(
            name,
            num_bytes,
            f"and models that are busy or pinned use {format_bytes(self.count_used())} of",
            "Send the request again later, or raise the limit.",
        )

    def _memory_error(self, name: str, num_bytes: int, relation: str, advice: str) -> TpuserveError:
        return CodedError(
            f"model {name} needs about {format_bytes(num_bytes)}, {relation} the "
            f"--max_model_memory of {format_bytes(self.limit_bytes)}. {advice}",
            Code.RESOURCE_EXHAUSTED,
        )
