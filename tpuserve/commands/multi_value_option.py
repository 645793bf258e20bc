"""Lets click options accept several values after one option name, as in `--batch-size 1 8 64`."""

from collections.abc import Callable
from typing import Any

import click


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
    except click.UsageError:
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
