"""Checks the configuration of request logs."""

from pathlib import Path, PurePosixPath

from server.config.model_config import LOG_FORMATS, RequestLogging
from server.storage.upload import check_can_upload
from tpuserve.errors import InvalidConfig

FILE_TYPES = ("", "file")


def check_logging_config(model: str, logging: RequestLogging) -> None:
    """Check the configuration of a model's request log.

    Raises:
      InvalidConfig: the type of the log collector or the format is unknown, the sampling rate is
        not between 0 and 1, the limit is negative, or the filename prefix is neither the absolute
        path nor the URL of a file.
      ExtraNotInstalled: a package that the URL needs is not installed.
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
    if logging.format not in LOG_FORMATS:
        raise InvalidConfig(
            f"logging_config of model {model}: log_collector_config has format "
            f"{logging.format!r}. Give {' or '.join(LOG_FORMATS)}."
        )
    if logging.max_total_bytes < 0:
        raise InvalidConfig(
            f"logging_config of model {model}: max_total_bytes is {logging.max_total_bytes}. Give "
            f"a number of bytes, or 0 for the default."
        )
    prefix = logging.filename_prefix
    if logging.is_remote:
        parts = PurePosixPath(prefix.partition("://")[2]).parts
        if len(parts) < 2 or ".." in parts or prefix.endswith("/"):
            raise InvalidConfig(
                f"logging_config of model {model}: filename_prefix is {prefix!r}. Give a URL that "
                f"ends with the start of a file name, for example s3://BUCKET/logs/requests."
            )
        check_can_upload(prefix, f"request log of model {model}")
    elif not Path(prefix).is_absolute() or prefix.endswith("/"):
        raise InvalidConfig(
            f"logging_config of model {model}: filename_prefix is {prefix!r}. Give an absolute "
            f"path that ends with the start of a file name, for example /logs/requests."
        )
