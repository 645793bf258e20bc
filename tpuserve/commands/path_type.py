"""The types of the arguments that name the directory of a SavedModel, of a model or of outputs."""

from pathlib import Path
from typing import Any

import click

from tpuserve.errors import BasePathNotFound, InvalidSetting
from tpuserve.files import uris
from tpuserve.saved_model import nearby, proto_file


class SavedModelPath(click.Path):
    """The type of an argument that names a SavedModel, or the base path of a model.

    A base path stands for its newest version, which a line on stderr names.
    """

    def __init__(self) -> None:
        """Create a type that does not check whether the directory exists.

        The function that reads the SavedModel reports a missing directory with a better message.
        """
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the text of the argument to a Path.

        Raises:
          InvalidSetting: The path is empty.
        """
        # An unset shell variable gives "", which pathlib would take for the working directory.
        if value == "":
            raise InvalidSetting(
                "DIRECTORY is empty. Name a directory that holds a saved_model.pb, or . for the "
                "working directory."
            )
        directory = super().convert(value, param, ctx)
        try:
            newest = nearby.newest_version(Path(value), proto_file.NAMES)
        except OSError:
            newest = None
        if newest is None:
            return directory
        click.echo(f"newest version: {newest}", err=True)
        return newest


class LocalBasePath(click.Path):
    """The type of an argument that names an existing local directory; a URI is an error."""

    def __init__(self) -> None:
        """Define the type so that it checks whether the directory exists."""
        super().__init__(exists=True, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the text of the argument to a Path.

        Raises:
          BasePathNotFound: The text is a URI.
        """
        not_local = uris.why_not_local(Path(value))
        if not_local is not None and not Path(value).exists():
            raise BasePathNotFound(not_local)
        return super().convert(value, param, ctx)


class OutputPath(click.Path):
    """The type of an argument that names a local directory to write to; a URI is an error.

    pathlib would take a URI such as gs://bucket/out for the local directory gs:/bucket/out.
    """

    def __init__(self, *, file_okay: bool = True) -> None:
        """Create a type that does not check whether the directory exists.

        Args:
          file_okay: whether the type accepts a file, which the command then refuses itself.
        """
        super().__init__(file_okay=file_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the text of the argument to a Path.

        Raises:
          InvalidSetting: The text is a URI.
        """
        text = str(value)
        if uris.is_uri(text):
            scheme, rest = text.split("://", 1)
            if scheme.lower() == "file":
                raise InvalidSetting(
                    f"{text} is a URI, and a directory is required. Name /{rest.lstrip('/')}."
                )
            raise InvalidSetting(
                f"{text} is a URI, and only a local directory can be written. Name a directory of "
                f'this machine, and copy it there, as Python does with fsspec.filesystem("{scheme}"'
                f').put("DIRECTORY/", "{text.rstrip("/")}/", recursive=True).'
            )
        return super().convert(value, param, ctx)
