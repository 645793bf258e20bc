"""What a model's logging_config must be like for a log to be written by it."""

from pathlib import Path

from server.config.model_config import RequestLogging
from tpuserve.errors import InvalidConfig

FILE_TYPES = ("", "file")


def check(model: str, logging: RequestLogging) -> None:
    """Refuses what no log can be written by.

    Raises:
      InvalidConfig: a type that is not there, a rate that is no share, or a prefix that is no
        absolute path.
    """
    if not 0 <= logging.sampling_rate <= 1:
        raise InvalidConfig(
            f"logging_config of model {model}: sampling_rate is {logging.sampling_rate}. Give the "
            f"share of requests to write, from 0 to 1."
        )
    if logging.type not in FILE_TYPES:
        raise InvalidConfig(
            f"logging_config of model {model}: log_collector_config has type {logging.type!r}. "
            f'Leave it out, or give "file".'
        )
    prefix = logging.filename_prefix
    if not Path(prefix).is_absolute() or prefix.endswith("/"):
        raise InvalidConfig(
            f"logging_config of model {model}: filename_prefix is {prefix!r}. Give an absolute "
            f"path that ends in the beginning of a file name, as /logs/requests."
        )
