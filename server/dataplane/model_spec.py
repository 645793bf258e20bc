"""The model, version and signature that a request asks for."""

from collections.abc import Mapping
from typing import NamedTuple

from tpuserve.errors import SignatureNotFound
from tpuserve.saved_model import signature as signatures
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, INIT_SIGNATURE, Signature

# The largest number of signatures that the message of an error names.
_MAX_SHOWN = 32


class ModelSpec(NamedTuple):
    """The model, version and signature that a request asks for.

    Attributes:
      version: the version number; None for the latest available version.
      label: a version label, such as "stable", instead of a version number; None for no label.
      is_open_inference: whether the request uses the Open Inference Protocol.
    """

    model: str
    version: int | None = None
    signature_name: str = ""
    label: str | None = None
    is_open_inference: bool = False

    @property
    def effective_signature_name(self) -> str:
        """The name of the requested signature; "serving_default" if the request names none.

        For a request of the Open Inference Protocol, `find_signature` may choose another signature.
        """
        return self.signature_name or DEFAULT_SIGNATURE

    def find_signature(self, known: Mapping[str, Signature]) -> tuple[str, Signature]:
        """Return the name of the signature that the request asks for, and the signature itself."""
        name = self.effective_signature_name
        if self.is_open_inference and name not in known:
            # Exclude the signature of the initialisation operation, which clients cannot call.
            names = sorted(known.keys() - {INIT_SIGNATURE})
            if self.signature_name or len(names) != 1:
                raise SignatureNotFound(
                    f'Serving signature key "{name}" not found. Model {self.model} has '
                    f"{_join(names)}. Send one of these names as signature_name."
                )
            (name,) = names
        return name, signatures.find_signature(known, name)


def _join(names: list[str]) -> str:
    shown = ", ".join(names[:_MAX_SHOWN]) or "no signature"
    return shown if len(names) <= _MAX_SHOWN else f"{shown} and {len(names) - _MAX_SHOWN} more"
