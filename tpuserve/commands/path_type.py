"""The argument that names a SavedModel."""

from pathlib import Path
from typing import Any

import click

from tpuserve.errors import InvalidSetting


class SavedModelPath(click.Path):
    """A path that may not be empty: to the system an empty one is the working directory."""

    def __init__(self) -> None:
        """Whether anything is there, the reader of the file says."""
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path.

        Raises:
          InvalidSetting: it is empty.
        """
        if value == "":
            raise InvalidSetting(
                "DIRECTORY is empty. Name a directory that holds a saved_model.pb, or . for this "
                "one."
            )
        return super().convert(value, param, ctx)
