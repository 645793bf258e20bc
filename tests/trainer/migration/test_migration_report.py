from pathlib import Path

from tests.trainer.migration import samples
from tests.trainer.migration.samples import findings_of, report_of
from trainer.migration import migration_report
from trainer.migration.names.classification import NameStatus

SEEDS = ("mnist.py", "mnist_one_shot.py")


def test_a_name_has_all_its_lines_and_stands_as_it_is_written(tmp_path: Path) -> None:
    source = "import tensorflow as tf\nt = tf.train\nt.Saver()\ntf.train.Saver()\nt.Saver()\n"
    findings = findings_of(tmp_path, source)
    assert findings["t.Saver"].lines == (3, 5)
    assert findings["tf.train.Saver"].lines == (4,)
    assert {findings[name].name for name in ("t.Saver", "tf.train.Saver")} == {
        "tensorflow.train.Saver"
    }


def test_the_documented_programs_name_nothing_that_is_gone() -> None:
    programs = Path(__file__).parents[1] / "compat/programs"
    for seed in SEEDS:
        program_report = migration_report.analyze_program(programs / seed)
        assert program_report.runs, [
            finding for finding in program_report.findings if not finding.kind.runs
        ]
        assert len(program_report.findings_of_kind(NameStatus.SUPPLIED)) >= 8
        assert "--emulate-tpu 8" in str(program_report.command)


def test_a_header_in_the_style_of_bert_is_understood(tmp_path: Path) -> None:
    program_report = report_of(tmp_path, samples.BERT_LIKE)
    assert program_report.runs, [
        finding for finding in program_report.findings if not finding.kind.runs
    ]
    assert program_report.tf1 is not None
    assert str(program_report.command).endswith("--data_dir=DATA_DIR --use_tpu=True")


def test_the_flags_that_a_program_defines_are_no_names_of_tensorflow(tmp_path: Path) -> None:
    source = "import tensorflow as tf\nFLAGS = tf.flags.FLAGS\nFLAGS.steps\ntf.app.flags.FLAGS.x\n"
    assert set(findings_of(tmp_path, source)) == {"tensorflow", "tf.flags.FLAGS"}


def test_what_is_found_in_modules_beside_the_script_says_their_file(tmp_path: Path) -> None:
    script = samples.write_file(tmp_path, "main.py", "import model")
    samples.write_file(tmp_path, "model.py", "import tensorflow as tf\ntf.get_variable\n")
    program_report = migration_report.analyze_program(script)
    assert program_report.tf1 is not None
    assert {Path(finding.file).name for finding in program_report.findings} == {"model.py"}
    assert migration_report.analyze_program(script, follow_imports=False).findings == ()


def test_a_program_with_a_module_that_does_not_parse_does_not_run(tmp_path: Path) -> None:
    script = samples.write_file(tmp_path, "main.py", "import model")
    samples.write_file(tmp_path, "model.py", "print 'x'")
    program_report = migration_report.analyze_program(script)
    assert not program_report.runs
    assert [problem.line for problem in program_report.problems] == [1]
    assert program_report.command is not None
