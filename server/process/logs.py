"""Configuration of the process's loggers: the stream and the format of log lines."""

import logging.config


def configure_logging() -> None:
    """Send the lines of every logger to stderr, with the time.

    Only warnings and errors of uvicorn and TensorFlow are shown.
    """
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "line": {"format": "%(asctime)s %(levelname).1s %(name)s: %(message)s"},
                # The access log's lines have no time in front, because their JSON contains the
                # time.
                "bare": {"format": "%(message)s"},
            },
            "handlers": {
                "stderr": {"class": "logging.StreamHandler", "formatter": "line"},
                "access": {"class": "logging.StreamHandler", "formatter": "bare"},
            },
            "root": {"level": "INFO", "handlers": ["stderr"]},
            # uvicorn logs only warnings, because the server itself logs its start and stop.
            "loggers": {
                "uvicorn": {"level": "WARNING"},
                "tensorflow": {"level": "WARNING"},
                "server.access": {"handlers": ["access"], "propagate": False},
            },
        }
    )
