"""Where log lines go and how they look, for the whole process."""

import logging.config


def configure() -> None:
    """Sends every logger's lines to stderr, with the time.

    Of uvicorn and TensorFlow only warnings and errors are shown.
    """
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "line": {"format": "%(asctime)s %(levelname).1s %(name)s: %(message)s"},
                # Lines of JSON have their time in them.
                "bare": {"format": "%(message)s"},
            },
            "handlers": {
                "stderr": {"class": "logging.StreamHandler", "formatter": "line"},
                "access": {"class": "logging.StreamHandler", "formatter": "bare"},
            },
            "root": {"level": "INFO", "handlers": ["stderr"]},
            # What these say of a good start and end, the server says in its own lines.
            "loggers": {
                "uvicorn": {"level": "WARNING"},
                "tensorflow": {"level": "WARNING"},
                "server.access": {"handlers": ["access"], "propagate": False},
            },
        }
    )
