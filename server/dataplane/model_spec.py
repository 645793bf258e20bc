"""The model, version and signature that a request asks for."""

from typing import NamedTuple

from tpuserve.saved_model.signature import DEFAULT_SIGNATURE


class ModelSpec(NamedTuple):
    """The model, version and signature that a request asks for.

    Attributes:
      model: the name of the model.
      version: the version number; None for the latest available version.
      signature_name: the name of the signature; empty for "serving_default".
      label: a version label, such as "stable", instead of a version number; None for no label.
    """

    model: str
    version: int | None = None
    signature_name: str = ""
    label: str | None = None

    @property
    def effective_signature_name(self) -> str:
        """The name of the signature to run; "serving_default" if the request names no signature."""
        return self.signature_name or DEFAULT_SIGNATURE
