"""Defines how a call names a model and a version, and how a server reports a version's state."""

from dataclasses import dataclass

from tpuserve.errors import InvalidSetting


@dataclass(frozen=True)
class ModelReference:
    """Names the model of a call, and selects its version by a number or a label.

    Attributes:
      label: the label of the version, such as "stable"; "" for none.
    """

    name: str
    version: int | None = None
    label: str = ""

    def __post_init__(self) -> None:
        """Check the attributes.

        Raises:
          InvalidSetting: the name is empty, or both a version and a label are set.
        """
        if not self.name:
            raise InvalidSetting("the name of the model is empty. Give the name that is served.")
        if self.version is not None and self.label:
            raise InvalidSetting(
                f"version {self.version} and label {self.label!r} are given. Give one of them."
            )


@dataclass(frozen=True)
class VersionStatus:
    """The state of a version of a model on a server.

    Attributes:
      state: "START", "LOADING", "AVAILABLE", "UNLOADING" or "END". Servers of the Open Inference
        Protocol report "LOADING", "READY", "UNLOADING" or "UNAVAILABLE".
      error: why the version could not be loaded; "" without an error.
    """

    version: int
    state: str
    error: str = ""
