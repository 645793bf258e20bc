"""The model that a call names, and the states of its versions."""

from dataclasses import dataclass

from tpuserve.errors import InvalidSetting


@dataclass(frozen=True)
class ModelReference:
    """A model, and the version of it that a call asks for.

    Attributes:
      name: the name of the model on the server.
      version: the version; None for the latest.
      label: the label of the version; "" for none.
    """

    name: str
    version: int | None = None
    label: str = ""

    def __post_init__(self) -> None:
        """Check that a name and at most one choice of a version are given.

        Raises:
          InvalidSetting: the name is empty, or a version and a label are given.
        """
        if not self.name:
            raise InvalidSetting("the name of the model is empty. Give the name that is served.")
        if self.version is not None and self.label:
            raise InvalidSetting(
                f"version {self.version} and label {self.label!r} are given. Give one of them."
            )


@dataclass(frozen=True)
class VersionStatus:
    """The state of a version of a model.

    Attributes:
      version: the version.
      state: "START", "LOADING", "AVAILABLE", "UNLOADING" or "END". Servers of the Open Inference
        Protocol report "LOADING", "READY", "UNLOADING" or "UNAVAILABLE".
      error: why the version could not be loaded; "" without an error.
    """

    version: int
    state: str
    error: str = ""
