"""Options that take several values after one name: `--batch-size 1 8 64`."""

from typing import Any

import click


class MultiValueCommand(click.Command):
    """A command whose options with `multiple=True` take values until one does not fit.

    Options for any text take one value each time.

    `--batch-size 1 8 DIR` is two sizes and an argument; `--batch-size 1 --batch-size 8` is the
    same.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Names an option once more before each further value of it."""
        options = {
            name: each
            for each in self.get_params(ctx)
            # Text fits anything, an argument that follows too.
            if isinstance(each, click.Option) and each.multiple and each.type is not click.STRING
            for name in each.opts
        }
        spelled: list[str] = []
        position = 0
        while position < len(args):
            name = args[position]
            spelled.append(name)
            position += 1
            if name not in options or position == len(args):
                continue
            spelled.append(args[position])
            position += 1
            while position < len(args) and _fits(options[name], args[position], ctx):
                spelled += [name, args[position]]
                position += 1
        return super().parse_args(ctx, spelled)


def _fits(option: click.Option, value: str, ctx: click.Context) -> bool:
    if value.startswith("-"):
        return False
    try:
        option.type.convert(value, option, ctx)
    except click.UsageError:
        return False
    return True


class PatternType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A value that is told from other words by how it is spelled."""

    def __init__(self, name: str, pattern: str, read: Any = str) -> None:
        """Reads what matches the pattern."""
        import re

        self.name = name
        self._pattern = re.compile(pattern)
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What was read, or a usage error."""
        if not isinstance(value, str):
            return value
        if not self._pattern.fullmatch(value):
            self.fail(f"{value!r} is no {self.name}.", param, ctx)
        return self._read(value)
