from pathlib import Path

import pytest

from tests.trainer.migration import samples
from tests.trainer.migration.samples import report_of
from trainer.migration import migration_report, text_report

ESTIMATOR = "import tensorflow as tf\ntf.contrib.tpu.TPUEstimator(f{})\n"


def command(directory: Path, source: str) -> str:
    """Write a program, and return its launch command without the program's path."""
    launch_command = report_of(directory, source).command
    assert launch_command is not None
    return launch_command.replace(f" {directory / 'program.py'}", "")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import tensorflow as tf\ntf.Session()", "tpuserve run"),
        ("import tensorflow as tf\ntf.estimator.Estimator(f)", "tpuserve run"),
        (ESTIMATOR.format(""), "tpuserve run --emulate-tpu 8"),
        (ESTIMATOR.format(", use_tpu=False"), "tpuserve run"),
        (ESTIMATOR.format(", use_tpu=True"), "tpuserve run --emulate-tpu 8"),
        (
            "flags.DEFINE_bool('use_tpu', False, 'x')\n" + ESTIMATOR.format(", use_tpu=F.use_tpu"),
            "tpuserve run --emulate-tpu 8 --use_tpu=True",
        ),
        (
            "flags.DEFINE_bool('use_tpu', True, 'x')\n" + ESTIMATOR.format(", use_tpu=F.use_tpu"),
            "tpuserve run --emulate-tpu 8",
        ),
        (
            "p.add_argument('--use-tpu', action='store_true')\n" + ESTIMATOR.format(""),
            "tpuserve run --emulate-tpu 8 --use-tpu",
        ),
        (
            "p.add_argument('--use_tpu', choices=['no', 'yes'])\n" + ESTIMATOR.format(""),
            "tpuserve run --emulate-tpu 8 --use_tpu=yes",
        ),
        ("p.add_argument('--data-dir', required=True)", "tpuserve run --data-dir=DATA_DIR"),
        ("flags.DEFINE_string('data_dir', None, 'x')", "tpuserve run --data_dir=DATA_DIR"),
        ("flags.DEFINE_string('data_dir', '/data', 'x')", "tpuserve run"),
        ("p.add_argument('--profile')", "tpuserve run"),
        (
            "import tensorflow as tf\ntf.data.Dataset.range(3).make_one_shot_iterator()",
            "tpuserve run --tf1",
        ),
        (
            "import tensorflow as tf\ntf.compat.v1.data.make_one_shot_iterator(d)",
            "tpuserve run",
        ),
    ],
)
def test_the_command_has_what_the_program_needs(tmp_path: Path, source: str, expected: str) -> None:
    assert command(tmp_path, source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ESTIMATOR.format(""), None),
        ("flags.DEFINE_bool('use_tpu', False, 'x')", None),
        ("flags.DEFINE_bool('use_tpu', False, 'x')\n" + ESTIMATOR.format(""), "tpuserve run"),
        (
            "flags.DEFINE_bool('use_tpu', True, 'x')\n" + ESTIMATOR.format(""),
            "tpuserve run --use_tpu=False",
        ),
    ],
)
def test_a_program_with_a_flag_for_the_tpu_gets_a_command_for_the_cpu(
    tmp_path: Path, source: str, expected: str | None
) -> None:
    program = report_of(tmp_path, source)
    found = program.cpu_command
    assert (found and found.replace(f" {tmp_path / 'program.py'}", "")) == expected
    lines = [str(line) for line in text_report._format_summary(program)]
    assert ("or on the CPU alone with" in lines) == (expected is not None)


@pytest.mark.parametrize(
    ("given", "expected", "expected_on_cpu"),
    [
        ((), "tpuserve run --emulate-tpu 8 --use_tpu=True", "tpuserve run"),
        (("--use_tpu=False",), "tpuserve run --use_tpu=False", None),
        (("--nouse_tpu",), "tpuserve run --nouse_tpu", None),
        (("--use_tpu", "--x=a b"), "tpuserve run --emulate-tpu 8 --use_tpu '--x=a b'", None),
        (
            ("--other=1",),
            "tpuserve run --emulate-tpu 8 --other=1 --use_tpu=True",
            "tpuserve run --other=1",
        ),
    ],
)
def test_the_command_has_the_arguments_that_are_given(
    given: tuple[str, ...], expected: str, expected_on_cpu: str | None, tmp_path: Path
) -> None:
    source = "flags.DEFINE_bool('use_tpu', False, 'x')\n" + ESTIMATOR.format("")
    script = samples.write_file(tmp_path, "program.py", source)
    report = migration_report.analyze_program(script, arguments=given)
    commands = (report.command, report.cpu_command)
    assert [found and found.replace(f" {script}", "") for found in commands] == [
        expected,
        expected_on_cpu,
    ]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("MirroredStrategy()", "tpuserve run"),
        ("MirroredStrategy(['/cpu:0'])", "tpuserve run"),
        ("MirroredStrategy(['/cpu:0', '/cpu:1'])", "tpuserve run --emulate-tpu 2"),
        (
            "MirroredStrategy(devices=('/gpu:0', '/gpu:1', '/gpu:2'))",
            "tpuserve run --emulate-tpu 3",
        ),
        ("MirroredStrategy(num_gpus=FLAGS.gpus, auto_shard=True)", "tpuserve run --emulate-tpu 4"),
        ("MirroredStrategy(num_gpus=count())", "tpuserve run"),
        ("OneDeviceStrategy('/cpu:0') if FLAGS.gpus else MirroredStrategy(9)", "tpuserve run"),
    ],
)
def test_a_strategy_has_a_core_for_each_replica(
    strategy: str, expected: str, tmp_path: Path
) -> None:
    source = "from tensorflow.distribute import MirroredStrategy, OneDeviceStrategy\n"
    flag = "flags.DEFINE_integer('gpus', 4, 'x')\n"
    assert command(tmp_path, f"{source}{flag}strategy = {strategy}") == expected
