import click
import pytest
from click.testing import CliRunner

from tpuserve.commands.path_type import MultiValueCommand, PatternType


@click.command(cls=MultiValueCommand)
@click.argument("names", nargs=-1)
@click.option("--size", type=int, multiple=True)
@click.option("--pair", type=PatternType("A:B", r"\w+:\w+", example="a:b"), multiple=True)
@click.option("--word", multiple=True)
@click.option("--quiet", is_flag=True)
def command(
    names: tuple[str, ...],
    size: tuple[int, ...],
    pair: tuple[str, ...],
    word: tuple[str, ...],
    quiet: bool,
) -> None:
    click.echo(f"{names} {size} {pair or word} {quiet}")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("--size 1 8 64", "() (1, 8, 64) () False"),
        ("--size 1 8 name", "('name',) (1, 8) () False"),
        ("name --size 1 --quiet --size 2 3", "('name',) (1, 2, 3) () True"),
        ("--pair a:b c:d name --size=4", "('name',) (4,) ('a:b', 'c:d') False"),
        ("--word a name --word b", "('name',) () ('a', 'b') False"),
        ("", "() () () False"),
    ],
)
def test_values_are_taken_until_one_does_not_fit(arguments: str, output: str) -> None:
    assert CliRunner().invoke(command, arguments.split()).output == f"{output}\n"


@pytest.mark.parametrize("arguments", ["--size", "--size x", "--pair ab", "--pair"])
def test_a_first_value_that_does_not_fit_is_refused(arguments: str) -> None:
    assert CliRunner().invoke(command, arguments.split()).exit_code == 2
