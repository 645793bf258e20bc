"""Options that accept several values after one name: `--batch-size 1 8 64`."""

from collections.abc import Callable
from typing import Any

import click


class MultiValueCommand(click.Command):
    """A command whose options with `multiple=True` accept several values in a row.

    `--batch-size 1 8 DIR` is two sizes and an argument: an option takes values until one is not
    valid for its type. `--batch-size 1 --batch-size 8` means the same. Options of type string
    take one value per occurrence, because every word is a valid string.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Turn `--size 1 8` into `--size 1 --size 8` for click, then parse the arguments."""
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
    """Return whether a word is a value of an option: it converts, and does not start with "-"."""
    if value.startswith("-"):
        return False
    try:
        option.type.convert(value, option, ctx)
    except click.UsageError:
        return False
    return True


class PatternType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The type of an option whose values match a regular expression."""

    def __init__(
        self, name: str, pattern: str, parse: Callable[[str], Any] = str, *, example: str
    ) -> None:
        """Define the type of an option by the pattern that its values have to match.

        Args:
          name: Name of the type in help and error texts, such as "ROWS:WEIGHT".
          pattern: Regular expression that a whole value has to match.
          parse: Takes a text that matches, and returns the value that the command gets.
          example: A valid value, for error texts.
        """
        import re

        self.name = name
        self._pattern = re.compile(pattern)
        self._parse = parse
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return `parse` of a text that matches the pattern; else fail with a usage error."""
        if not isinstance(value, str):
            return value
        if not self._pattern.fullmatch(value):
            self.fail(
                f"{value!r} is not a valid {self.name}. Give a value such as {self._example}.",
                param,
                ctx,
            )
        return self._parse(value)
