import ast
from pathlib import Path

import pytest

from trainer.migration.program import program_flags
from trainer.migration.program.program_flags import ProgramFlag
from trainer.migration.program.sources import SourceFile


def flags(source: str) -> list[ProgramFlag]:
    return program_flags.find_flags(ast.parse(source))


def test_flags_of_absl_are_found_with_those_that_are_required() -> None:
    assert flags(
        "flags.DEFINE_string('data_dir', None, 'x')\n"
        "DEFINE_bool('use_tpu', default=True, help='x')\n"
        "tf.flags.DEFINE_integer('steps', 1, 'x', required=True)\n"
        "flags.DEFINE_string(name, None, 'x')\n"
        "flags.mark_flags_as_required(['data_dir'])"
    ) == [
        ProgramFlag("data_dir", is_required=True),
        ProgramFlag("use_tpu", is_on=True),
        ProgramFlag("steps", is_required=True),
    ]


def test_options_of_argparse_are_found() -> None:
    assert flags(
        "parser.add_argument('-d', '--data', required=True)\n"
        "parser.add_argument('--use_tpu', action='store_true')\n"
        "parser.add_argument('--mode', choices=['train', 'eval'])\n"
        "parser.add_argument('script')"
    ) == [
        ProgramFlag("data", is_required=True),
        ProgramFlag("use_tpu", is_switch=True),
        ProgramFlag("mode", choices=("train", "eval")),
    ]


def test_a_switch_is_given_without_a_value() -> None:
    assert ProgramFlag("use_tpu", is_switch=True).format_argument("True") == "--use_tpu"
    assert ProgramFlag("use_tpu").format_argument("True") == "--use_tpu=True"


def values(source: str, *arguments: str) -> dict[str, object]:
    """Return the values of the flags of a program that is started with some arguments."""
    tree = ast.parse(source)
    files = [SourceFile("a.py", Path("a.py"), tree)]
    return program_flags.find_flag_values(files, program_flags.find_flags(tree), arguments)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("DEFINE_integer('x', 1, '')", {"x": 1}),
        ("DEFINE_float(name='x', help='', default=-0.5)", {"x": -0.5}),
        ("DEFINE_enum('x', None, ['a'], '')", {"x": None}),
        ("DEFINE_list('x', 'a,b', '')", {}),
        ("DEFINE_string('x', os.getcwd(), '')", {}),
        ("p.add_argument('--x-y', default=2)", {"x_y": 2}),
        ("p.add_argument('--x', dest='y')", {"y": None}),
        ("p.add_argument('--x', action='store_true')", {"x": False}),
        ("p.add_argument('--x', action='store_false')", {"x": True}),
        ("p.add_argument('--x', type=int, default='2')", {}),
        ("DEFINE_integer('x', 1, '')\nDEFINE_integer('x', 2, '')", {}),
        ("DEFINE_integer('x', 1, '')\nFLAGS.x = 2", {}),
        ("DEFINE_integer('x', 1, '')\nflags_core.set_defaults(x=2)", {"x": 2}),
        ("DEFINE_integer('x', 1, '')\nFLAGS.set_default('x', 2)", {"x": 2}),
        ("DEFINE_integer('x', 1, '')\nFLAGS.set_default('x', number)", {}),
    ],
)
def test_a_flag_that_is_not_given_has_its_default(source: str, expected: dict[str, object]) -> None:
    assert values(source) == expected


@pytest.mark.parametrize(
    ("source", "argument", "expected"),
    [
        ("DEFINE_integer('x', 1, '')", "--x=2", {"x": 2}),
        ("DEFINE_integer('x', 1, '')", "-x 2", {"x": 2}),
        ("DEFINE_integer('x', 1, '')\nparser.set_defaults(x=3)", "--x=2", {"x": 2}),
        ("DEFINE_integer('x', 1, '')", "--x=many", {}),
        ("DEFINE_integer('x', 1, '')", "--x", {}),
        ("DEFINE_integer('x', 1, '')", "--xy=2", {"x": 1}),
        ("DEFINE_bool('x', True, '')", "--x=false", {"x": False}),
        ("DEFINE_bool('x', True, '')", "--nox", {"x": False}),
        ("DEFINE_bool('x', 'false', '')", "", {"x": False}),
        ("DEFINE_bool('x', False, '')", "--x next", {"x": True}),
        ("DEFINE_list('x', None, '')", "--x=a,b", {}),
        ("p.add_argument('--x', action='store_true')", "--x", {"x": True}),
        ("p.add_argument('--x', type=str2bool, default=True)", "--x=no", {}),
        ("p.add_argument('--x-y', type=float)", "--x-y 2.5", {"x_y": 2.5}),
    ],
)
def test_a_flag_that_is_given_has_the_value(
    source: str, argument: str, expected: dict[str, object]
) -> None:
    assert values(source, *argument.split()) == expected
