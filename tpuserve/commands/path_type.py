"""The types of the arguments that name the directory of a SavedModel, of a model or of outputs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tpuserve.errors import BasePathNotFound, InvalidSetting, TpuserveError
from tpuserve.files import uris
from tpuserve.saved_model import nearby, proto_file


class MultiValueCommand(click.Command):
    """A click command whose options with `multiple=True` accept several values in a row.

    An option takes the words after it, until a word is not valid for its type. So
    `--batch-size 1 8 DIR` is two batch sizes and an argument, and means the same as
    `--batch-size 1 --batch-size 8 DIR`. An option of type string takes only one word, because
    every word is a valid string.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite `--size 1 8` as `--size 1 --size 8`, then let click parse the arguments."""
        options = {
            name: parameter
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option)
            and parameter.multiple
            and parameter.type is not click.STRING
            for name in parameter.opts
        }
        expanded: list[str] = []
        position = 0
        while position < len(args):
            name = args[position]
            expanded.append(name)
            position += 1
            if name not in options or position == len(args):
                continue
            expanded.append(args[position])
            position += 1
            while position < len(args) and _is_valid(options[name], args[position], ctx):
                expanded += [name, args[position]]
                position += 1
        return super().parse_args(ctx, expanded)


def _is_valid(option: click.Option, value: str, ctx: click.Context) -> bool:
    """Return whether a word of the command line is a valid value for an option.

    A valid value does not start with "-", and the type of the option can convert it.
    """
    if value.startswith("-"):
        return False
    try:
        option.type.convert(value, option, ctx)
    except (click.UsageError, TpuserveError):
        return False
    return True


class PatternType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The click type of an option whose values have to match a regular expression."""

    def __init__(
        self, name: str, pattern: str, parse: Callable[[str], Any] = str, *, example: str
    ) -> None:
        """Create a type from the regular expression that its values have to match.

        Args:
          name: Name of the type in help and error texts, such as "ROWS:WEIGHT".
          pattern: Regular expression that a whole value has to match.
          parse: Converts a text that matches to the value that is passed to the command.
          example: A valid value, for error texts.
        """
        import re

        self.name = name
        self._pattern = re.compile(pattern)
        self._parse = parse
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a text that matches the pattern; fail with a usage error for other texts."""
        if not isinstance(value, str):
            return value
        if not self._pattern.fullmatch(value):
            self.fail(
                f"{value!r} is not a valid {self.name}. Give a value such as {self._example}.",
                param,
                ctx,
            )
        return self._parse(value)


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


class LocalPath(click.Path):
    """The type of an argument that names an existing local file or directory; a URI is an error."""

    def __init__(self, *, file_okay: bool = True, dir_okay: bool = True) -> None:
        """Create a type that checks whether the path exists, and is what may be named."""
        super().__init__(exists=True, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

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
