"""What a request is addressed to."""

from typing import NamedTuple

from tpuserve.saved_model.signature import DEFAULT_SIGNATURE


class Target(NamedTuple):
    """What a request is addressed to.

    Attributes:
      version: None for the latest that is available.
      signature_name: empty for "serving_default".
      label: names a version instead of its number; None where it does not.
    """

    model: str
    version: int | None = None
    signature_name: str = ""
    label: str | None = None

    @property
    def effective_signature_name(self) -> str:
        """The signature that answers, never empty."""
        return self.signature_name or DEFAULT_SIGNATURE
