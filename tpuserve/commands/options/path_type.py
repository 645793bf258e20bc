"""The type of the argument that names a SavedModel's directory."""

from pathlib import Path
from typing import Any

import click

from tpuserve.errors import InvalidSetting


class SavedModelPath(click.Path):
    """The type of a path argument that refuses "", which pathlib reads as the working directory."""

    def __init__(self) -> None:
        """Define the type so that it does not check whether the directory exists."""
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the text of the argument to a Path.

        Raises:
          InvalidSetting: The path is empty.
        """
        if value == "":
            raise InvalidSetting(
                "DIRECTORY is empty. Name a directory that holds a saved_model.pb, or . for the "
                "working directory."
            )
        return super().convert(value, param, ctx)
