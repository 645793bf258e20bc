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
                # The format of the access log has no time in front, because the JSON of each line
                # contains the time.
                "bare": {"format": "%(message)s"},
            },
            "handlers": {
                "stderr": {"class": "logging.StreamHandler", "formatter": "line"},
                "access": {"class": "logging.StreamHandler", "formatter": "bare"},
            },
            "root": {"level": "INFO", "handlers": ["stderr"]},
            # Leave out uvicorn's lines below WARNING, because the server logs its own start and
            # stop.
            "loggers": {
                "uvicorn": {"level": "WARNING"},
                "tensorflow": {"level": "WARNING"},
                "server.access": {"handlers": ["access"], "propagate": False},
            },
        }
    )
