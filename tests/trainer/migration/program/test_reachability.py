from pathlib import Path

import pytest

from tests.trainer.migration import samples
from tests.trainer.migration.samples import report_of
from trainer.migration import migration_report

HEADER = '''
    import sys
    import six
    import tensorflow as tf
    FLAGS = tf.flags.FLAGS
    tf.flags.DEFINE_bool("use_gpus", False, "")
    tf.flags.DEFINE_bool("use_tpu", False, "")
    tf.flags.DEFINE_string("mode", "train", "")
    tf.flags.DEFINE_integer(name="workers", default=1, help="")
    F = flags.FLAGS
    USE_NEW = False
    PARAMS = {"use_gpus": FLAGS.use_gpus, "steps": 1}
    PARAMS["workers"] = FLAGS.workers
    PARAMS["steps"] = 2
    DEFAULTS = dict(use_lars=False, use_adam=False, mode=None)
    HOOKS = []
    HOOKS.append(1)
    LOADED = json.load(open("settings.json"))
    MODE = os.environ.get("MODE") or "train"
    A0 = unknown
    A1 = A0 or not A0
    A2 = A1 or not A1
    A3 = A2 or not A2
    override(use_adam=unknown)

    def count_workers(flags_obj):
        """Return the number of workers."""
        if flags_obj.workers != -1:
            return flags_obj.workers
        return len(os.environ["WORKERS"])

    def count_devices(flags_obj):
        if unknown:
            return 1
        return flags_obj.workers

    def count_forever():
        return count_forever()
'''
MAIN = """
    if __name__ == "__main__":
        tf.app.run(main)
"""


@pytest.mark.parametrize(
    "condition",
    [
        "FLAGS.use_gpus",
        "FLAGS.mode == 'export'",
        "FLAGS.mode != 'train' and unknown",
        "not FLAGS.mode",
        "six.PY2",
        "sys.version_info < (3, 0)",
        "sys.version_info[0] == 2",
        "tf.__version__ < '1.5'",
        "tf.__version__.startswith('1.')",
        "int(tf.__version__.split('.')[0]) < 2",
        "LooseVersion(tf.__version__) < LooseVersion('1.13.1')",
        "TYPE_CHECKING",
        "USE_NEW and unknown",
        "FLAGS.workers > 1 or FLAGS.workers < 0",
        "FLAGS.mode in ('export', 'predict')",
        "bool(FLAGS.use_gpus)",
        "F.use_gpus",
        "PARAMS['use_gpus']",
        "PARAMS.get('workers') == 3",
        "params['use_lars']",
        "hparams.use_lars",
        "self.config.get('use_lars')",
        "count_workers(FLAGS) > 1",
        "False",
    ],
)
def test_a_branch_that_is_not_taken_stops_no_program(condition: str, tmp_path: Path) -> None:
    live_main = f"    def main(_):\n        if not ({condition}):\n            tf.gone_name\n"
    not_taken = f"    def main(_):\n        if {condition}:\n            tf.gone_name\n"
    program_report = report_of(tmp_path, HEADER + not_taken + MAIN)
    assert program_report.runs
    assert [finding.written for finding in program_report.unreached_findings] == ["tf.gone_name"]
    assert not report_of(tmp_path, HEADER + live_main + MAIN).runs


@pytest.mark.parametrize(
    "condition",
    [
        "FLAGS.use_tpu",
        "unknown",
        "FLAGS.steps > 5",
        "unknown()",
        "PARAMS['steps'] == 1",
        "PARAMS['other']",
        "other['use_gpus']",
        "FLAGS.workers > len(unknown)",
        "FLAGS.mode < 3",
        "count_devices(FLAGS) > 1",
        "count_forever() > 1",
        "features['use_lars']",
        "params['use_adam']",
        "params.nobody_sets_this",
        "params.mode == 'eval'",
        "HOOKS",
        "len(HOOKS) > 0",
        "LOADED['use_lars']",
        "MODE == 'train'",
        "int(1e999) > 3",
        "A3",
        "(lambda USE_NEW: USE_NEW)(unknown)",
        "[1 for USE_NEW in unknown if USE_NEW]",
    ],
)
def test_a_branch_of_an_unknown_condition_may_be_taken(condition: str, tmp_path: Path) -> None:
    source = f"    def main(_):\n        if {condition}:\n            tf.gone_name\n"
    assert not report_of(tmp_path, HEADER + source + MAIN).runs


@pytest.mark.parametrize(
    "live",
    [
        "tf.gone_name() if FLAGS.use_gpus else None",
        "None if not FLAGS.use_gpus else tf.gone_name()",
        "FLAGS.use_gpus and tf.gone_name()",
        "FLAGS.mode or tf.gone_name()",
        "return\n        tf.gone_name()",
        "raise ValueError\n        tf.gone_name()",
        "sys.exit()\n        tf.gone_name()",
        "if FLAGS.mode: return\n        tf.gone_name()",
        "while FLAGS.use_gpus: tf.gone_name()",
        "use_gpus = FLAGS.use_gpus\n        if use_gpus: tf.gone_name()",
    ],
)
def test_code_that_is_not_run_stops_no_program(live: str, tmp_path: Path) -> None:
    report = report_of(tmp_path, f"{HEADER}    def main(_):\n        {live}\n{MAIN}")
    assert [finding.written for finding in report.unreached_findings] == ["tf.gone_name"]
    assert report.runs


@pytest.mark.parametrize(
    "live",
    [
        "if unknown: return\n        tf.gone_name()",
        "if FLAGS.use_gpus: return\n        tf.gone_name()",
        "unknown and tf.gone_name()",
        "while FLAGS.mode: tf.gone_name()",
        "use = False\n        if unknown: use = True\n        if use: tf.gone_name()",
        "for use in (False, True):\n            if use: tf.gone_name()",
        "use = not use\n        if use: tf.gone_name()",
        "use = read('use_gpus')\n        if use: tf.gone_name()",
        "global USE_NEW; USE_NEW = True\n        if USE_NEW: tf.gone_name()",
        "FLAGS.use_gpus = True\n        if FLAGS.use_gpus: tf.gone_name()",
    ],
)
def test_code_that_may_run_stops_the_program(live: str, tmp_path: Path) -> None:
    assert not report_of(tmp_path, f"{HEADER}    def main(_):\n        {live}\n{MAIN}").runs


def test_a_module_that_only_code_that_is_not_run_imports_is_not_reached(tmp_path: Path) -> None:
    gone = "import tensorflow as tf\ntf.gone_name\n"
    samples.write_file(tmp_path, "a.py", "import b\n" + gone)
    samples.write_file(tmp_path, "b.py", "import a\n" + gone)
    source = "def main(): pass\ndef unused(): import a\nif 2 < 1: import b\nmain()\n"
    report = report_of(tmp_path, source)
    assert [Path(finding.file).name for finding in report.unreached_findings] == ["a.py", "b.py"]
    assert report.runs
    assert not report_of(tmp_path, source + "import a").runs


UNUSED = """
    import tensorflow as tf

    def unused():
        tf.gone_one

    def used_by_unused():
        tf.gone_two

    def unused_too():
        used_by_unused()

    class Unused:
        def method(self):
            tf.gone_three

    def named():
        tf.still_there

    def main(_):
        getattr(tf, "x", globals()["named"])

    if __name__ == "__main__":
        tf.app.run(main)
"""


def test_a_function_that_nothing_names_stops_no_program(tmp_path: Path) -> None:
    program_report = report_of(tmp_path, UNUSED)
    assert {finding.written for finding in program_report.unreached_findings} == {
        "tf.gone_one",
        "tf.gone_two",
        "tf.gone_three",
    }
    assert [finding.written for finding in program_report.findings if finding.stops] == [
        "tf.still_there"
    ]


def test_all_functions_of_a_file_without_a_main_part_count(tmp_path: Path) -> None:
    source = "import tensorflow as tf\ndef model():\n    tf.gone_name\n"
    assert not report_of(tmp_path, source).runs


def test_the_main_part_of_an_imported_module_does_not_run(tmp_path: Path) -> None:
    script = samples.write_file(tmp_path, "main.py", "import model\nmodel.run()\n")
    module = "import tensorflow as tf\nif __name__ == '__main__':\n    tf.gone_name\n"
    samples.write_file(tmp_path, "model.py", module)
    assert migration_report.analyze_program(script).runs
    assert not migration_report.analyze_program(tmp_path / "model.py").runs


def test_a_variable_that_an_inner_function_changes_is_not_known(tmp_path: Path) -> None:
    source = """
    def main(_):
        count = 0

        def add():
            nonlocal count
            count += 1

        add()
        if count:
            tf.gone_name
"""
    assert not report_of(tmp_path, HEADER + source + MAIN).runs


def test_a_value_is_computed_once_however_often_it_is_used(tmp_path: Path) -> None:
    chain = "".join(f"    B{n} = B{n - 1} or not B{n - 1}\n" for n in range(1, 60))
    main = "    def main(_):\n        if not B59:\n            tf.gone_name\n"
    source = f"    B0 = False\n{chain}{main}"
    assert report_of(tmp_path, HEADER + source + MAIN).runs
