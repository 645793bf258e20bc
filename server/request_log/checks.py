"""Checks the configuration of request logs."""

from pathlib import Path

from server.config.model_config import RequestLogging
from tpuserve.errors import InvalidConfig

FILE_TYPES = ("", "file")


def check_logging_config(model: str, logging: RequestLogging) -> None:
    """Check the configuration of a model's request log.

    Raises:
      InvalidConfig: the type of the log collector is unknown, the sampling rate is not between 0
        and 1, or the filename prefix is not the absolute path of a file.
    """
    if not 0 <= logging.sampling_rate <= 1:
        raise InvalidConfig(
            f"logging_config of model {model}: sampling_rate is {logging.sampling_rate}. Give the "
            f"fraction of requests to log, from 0 to 1."
        )
    if logging.type not in FILE_TYPES:
        raise InvalidConfig(
            f"logging_config of model {model}: log_collector_config has type {logging.type!r}. "
            f'Remove the type, or set "file".'
        )
    prefix = logging.filename_prefix
    if not Path(prefix).is_absolute() or prefix.endswith("/"):
        raise InvalidConfig(
            f"logging_config of model {model}: filename_prefix is {prefix!r}. Give an absolute "
            f"path that ends with the start of a file name, for example /logs/requests."
        )
