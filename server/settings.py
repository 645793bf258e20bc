"""What a server is told to do, checked once."""

from dataclasses import dataclass
from pathlib import Path

from tpuserve.errors import InvalidSetting
from tpuserve.tags import TagSet

DEFAULT_PORT = 8500
DEFAULT_REST_API_PORT = 8501
DEFAULT_HOST = "0.0.0.0"
DEFAULT_MODEL_NAME = "default"

_MAX_PORT = 65535


@dataclass(frozen=True)
class Settings:
    """The settings of one server, named as its flags are.

    Attributes:
      model_base_path: absolute; holds one directory a version.
      model_name: what clients call the model.
      port: for gRPC; 0 turns it off.
      rest_api_port: for REST; 0 turns it off.
      host: the IPv4 address to listen on.
      saved_model_tags: the exact tag set of the metagraph; None leaves it to the hardware.

    Raises:
      InvalidSetting: a value that no server can work with.
    """

    model_base_path: Path
    model_name: str = DEFAULT_MODEL_NAME
    port: int = DEFAULT_PORT
    rest_api_port: int = DEFAULT_REST_API_PORT
    host: str = DEFAULT_HOST
    saved_model_tags: TagSet | None = None

    def __post_init__(self) -> None:
        """Checks every value, and the values against each other."""
        _check_port("--port", self.port)
        _check_port("--rest_api_port", self.rest_api_port)
        if self.port == self.rest_api_port:
            raise InvalidSetting(_same_ports(self.port))
        if not self.host:
            raise InvalidSetting("--host is empty. Give the address to listen on, as 0.0.0.0.")
        if not self.model_name:
            raise InvalidSetting("--model_name is empty. Give the name that clients will use.")
        if not self.model_base_path.is_absolute():
            raise InvalidSetting(
                f"--model_base_path is {_shown(self.model_base_path)}, which is no absolute path. "
                f"Give the absolute path of the directory that holds the version directories."
            )


def _check_port(flag: str, port: int) -> None:
    if not 0 <= port <= _MAX_PORT:
        raise InvalidSetting(f"{flag} is {port}. Give a port from 1 to {_MAX_PORT}, or 0 for off.")


def _same_ports(port: int) -> str:
    if port == 0:
        return "--port and --rest_api_port are both 0, which is off. Give a port to at least one."
    return f"--port and --rest_api_port are both {port}. Give each a port of its own."


def _shown(path: Path) -> str:
    # Path("") turns into "."; nobody typed that.
    return "empty" if path == Path() else repr(str(path))
