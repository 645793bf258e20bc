import ast

from trainer.migration.program import launch_command
from trainer.migration.program.launch_command import ProgramFlag


def flags(source: str) -> list[ProgramFlag]:
    return launch_command.find_flags(ast.parse(source))


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
