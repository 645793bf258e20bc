"""Paths as TensorFlow Serving reads them: matched as they are sent, decoded afterwards."""

from urllib.parse import unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

from tpuserve.errors import InvalidInput

_MAX_VERSION = 2**63 - 1
_MAX_DIGITS = len(str(_MAX_VERSION))


class RawPath:
    """Middleware that routes on the path as it was sent: in "a%2Fb" the slash is no separator."""

    def __init__(self, app: ASGIApp) -> None:
        """Takes the application that routes."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on with its path undecoded."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._app(scope, receive, send)


class ModelName(Convertor[str]):
    """A model's name in a path: anything but a slash or a colon, unless percent-encoded."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        """The name itself."""
        return unquote_to_bytes(value.encode("latin-1")).decode(errors="replace")


class Digits(Convertor[str]):
    """The digits of a version, as text: how many there are is up to the client."""

    regex = "[0-9]+"

    def convert(self, value: str) -> str:
        """The digits as they are."""
        return value


def register() -> None:
    """Makes {name:model_name} and {version:digits} known to routes; once or often is the same."""
    register_url_convertor("model_name", ModelName())
    register_url_convertor("digits", Digits())


def parse_version(digits: str) -> int:
    """The version that digits name.

    Raises:
      InvalidInput: a number beyond 64 bits.
    """
    if len(digits.lstrip("0")) > _MAX_DIGITS or int(digits) > _MAX_VERSION:
        raise InvalidInput(f"Failed to convert version: {digits} to numeric.")
    return int(digits)
