"""Small programs in the patterns of public ones: what stops them is found, and nothing else is."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.trainer.migration import samples
from trainer.migration import migration_report

HEADER = """
import os, sys
import tensorflow as tf
from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_bool("use_tpu", True, "")
flags.DEFINE_bool("reduce", False, "")
flags.DEFINE_integer(name="num_gpus", default=1, help="")
flags.DEFINE_enum("model", "custom", ["custom", "trees"], "")
flags.DEFINE_string("export", None, "")
flags.DEFINE_string("mode", "train", "")
"""
RUN = "\nif __name__ == '__main__':\n    app.run(main)\n"
TREES = "tf.estimator.BoostedTreesClassifier"


@dataclass(frozen=True)
class Program:
    """A program, its command line, and what the report should say.

    Attributes:
      stopped_by: the names that stop the program, as it writes them; empty if it runs.
      unreached: the missing names that it does not reach.
    """

    source: str
    arguments: str = ""
    stopped_by: str = ""
    unreached: str = ""


def with_main(body: str, before: str = "") -> str:
    """Return a program with flags and a main function."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{HEADER}{before}\ndef main(_):\n{lines}{RUN}"


BUILD = f"""
def build_trees():
    return {TREES}([], n_batches_per_layer=1)

def build_custom():
    return tf.estimator.Estimator(lambda features, labels, mode: None)
"""
COUNT_GPUS = """
def get_num_gpus(flags_obj):
    if flags_obj.num_gpus != -1:
        return flags_obj.num_gpus
    return len([x for x in tf.config.list_physical_devices() if x.device_type == "GPU"])
"""
GONE_IF = "if {}:\n    tf.contrib.nccl.all_sum([])"
LOGGER = "import tensorflow as tf\nprint(tf.logging.__name__)\n"

RUNNING = {
    "a level of the logger by its name": Program(
        LOGGER + "tf.logging.set_verbosity(tf.logging.__dict__['INFO'] / 10)"
    ),
    "the main module as a module": Program("import __main__\nprint(__main__.__file__)"),
    "a package with lazy imports": Program("import lazy_datasets as tfds\ntfds.load('mnist')"),
    "a package with an extra that is not installed": Program("import with_extra"),
    "a package for type checkers": Program(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nobody_has_this"
    ),
    "a package that the program does without": Program(
        "try:\n    import nobody_has_this as gym\nexcept ImportError:\n    gym = None"
    ),
    "a package whose absence is suppressed": Program(
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import nobody_has_this"
    ),
    "a flag that is off": Program(
        with_main(GONE_IF.format("FLAGS.reduce")), unreached="tf.contrib.nccl.all_sum"
    ),
    "a flag that is turned off": Program(
        with_main(GONE_IF.format("FLAGS.use_tpu")),
        "--use_tpu=false",
        unreached="tf.contrib.nccl.all_sum",
    ),
    "a flag that is turned off by its prefix": Program(
        with_main(GONE_IF.format("FLAGS.use_tpu")),
        "--nouse_tpu",
        unreached="tf.contrib.nccl.all_sum",
    ),
    "a number of GPUs": Program(
        with_main(
            "run(FLAGS)",
            "def run(flags_obj):\n    if flags_obj.num_gpus > 1: tf.contrib.nccl.all_sum([])",
        ),
        unreached="tf.contrib.nccl.all_sum",
    ),
    "a number of GPUs from a function": Program(
        with_main("num_gpus = get_num_gpus(FLAGS)\n" + GONE_IF.format("num_gpus > 1"), COUNT_GPUS),
        unreached="tf.contrib.nccl.all_sum",
    ),
    "an entry of params": Program(
        with_main(
            "tf.estimator.Estimator(model_fn, params={'multi_gpu': FLAGS.num_gpus > 1})",
            "def model_fn(features, labels, mode, params):\n"
            "    if params.get('multi_gpu'): tf.contrib.nccl.all_sum([])",
        ),
        unreached="tf.contrib.nccl.all_sum",
    ),
    "a canned model that is not chosen": Program(
        with_main(
            "if FLAGS.model == 'trees':\n    model = build_trees()\n"
            "else:\n    model = build_custom()",
            BUILD,
        ),
        unreached=TREES,
    ),
    "a canned model that nothing uses": Program(
        with_main("build_custom()", BUILD), unreached=TREES
    ),
    "a strategy for several GPUs": Program(
        with_main(
            "strategy = tf.contrib.distribute.TPUStrategy() if FLAGS.num_gpus > 1 else None\n"
            "tf.estimator.RunConfig(train_distribute=strategy)"
        ),
        unreached="tf.contrib.distribute.TPUStrategy()",
    ),
    "a strategy of one device": Program(
        "import tensorflow as tf\nstrategy = tf.distribute.OneDeviceStrategy('/cpu:0')\n"
        "tf.estimator.RunConfig(train_distribute=strategy)"
    ),
    "a mirrored strategy of one device": Program(
        "import tensorflow as tf\n"
        "tf.estimator.RunConfig(train_distribute=tf.distribute.MirroredStrategy())"
    ),
    "a strategy of contrib": Program(
        "import tensorflow as tf\nstrategy = tf.contrib.distribute.MirroredStrategy(num_gpus=1)\n"
        "tf.estimator.RunConfig(train_distribute=strategy)"
    ),
    "a canned estimator": Program("import tensorflow as tf\ntf.estimator.DNNClassifier([4], [])"),
    "a head of contrib": Program(
        "import tensorflow as tf\ntf.contrib.estimator.multi_class_head(n_classes=3)"
    ),
    "a metric as a number of Python": Program(
        with_main("results = build_custom().evaluate(None)\nprint(results['loss'].item())", BUILD),
        unreached=TREES,
    ),
    "a return before an export": Program(
        with_main("if not FLAGS.export:\n    return\ntf.contrib.gan.gan_model()"),
        unreached="tf.contrib.gan.gan_model",
    ),
    "a mode that is not run": Program(
        with_main("if FLAGS.mode in ('eval', 'predict'):\n    tf.contrib.gan.gan_model()"),
        "--mode train",
        unreached="tf.contrib.gan.gan_model",
    ),
    "a module that another mode imports": Program(
        with_main("if FLAGS.mode == 'eval':\n    import gan_metrics\n    gan_metrics.run()"),
        unreached="tensorflow.contrib.gan",
    ),
    "a switch of argparse": Program(
        "import argparse\nimport tensorflow as tf\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--use-gan', action='store_true')\nsettings = parser.parse_args()\n"
        "if settings.use_gan:\n    tf.contrib.gan.gan_model()",
        unreached="tf.contrib.gan.gan_model",
    ),
    "a branch for an old TensorFlow": Program(
        "import tensorflow as tf\nfrom distutils_like import LooseVersion\n"
        "if LooseVersion(tf.__version__) < LooseVersion('1.4'):\n    tf.contrib.rnn.OldCell",
        unreached="tf.contrib.rnn.OldCell",
    ),
    "a name that the program asks for": Program(
        "import tensorflow as tf\nmap_fn = tf.old_map if hasattr(tf, 'old_map') else tf.map_fn"
    ),
    "a name that the program tries": Program(
        "import tensorflow as tf\n"
        "try:\n    load = tf.load_old\nexcept AttributeError:\n    load = None"
    ),
    "a name of Python 2": Program(
        "import six\nprint(unicode('x') if six.PY2 else 'x', raw_input() if six.PY2 else '')"
    ),
}

STOPPED = {
    "a flag that is given": Program(
        with_main("if FLAGS.model == 'trees':\n    build_trees()", BUILD),
        "--model=trees",
        stopped_by=TREES,
    ),
    "a flag that is on": Program(
        with_main(GONE_IF.format("FLAGS.use_tpu")), "--use_tpu", "tf.contrib.nccl.all_sum"
    ),
    "a flag that the program sets": Program(
        with_main("FLAGS.reduce = True\n" + GONE_IF.format("FLAGS.reduce")),
        stopped_by="tf.contrib.nccl.all_sum",
    ),
    "a flag with another default": Program(
        with_main(GONE_IF.format("FLAGS.reduce"), "FLAGS.set_default('reduce', True)"),
        stopped_by="tf.contrib.nccl.all_sum",
    ),
    "several GPUs": Program(
        with_main("num_gpus = get_num_gpus(FLAGS)\n" + GONE_IF.format("num_gpus > 1"), COUNT_GPUS),
        "--num_gpus 2",
        "tf.contrib.nccl.all_sum",
    ),
    "boosted trees": Program(with_main("build_trees()", BUILD), stopped_by=TREES),
    "a strategy for a TPU": Program(
        "import tensorflow as tf\ntf.contrib.distribute.TPUStrategy(None)",
        stopped_by="tf.contrib.distribute.TPUStrategy()",
    ),
    "a module of contrib": Program(
        "from tensorflow.contrib import gan as tfgan\ntfgan.gan_model",
        stopped_by="tensorflow.contrib.gan tfgan.gan_model",
    ),
    "an argument that is misspelt": Program(
        "import tensorflow as tf\ntf.contrib.tpu.TPUConfig(num_shard=8)",
        stopped_by="tf.contrib.tpu.TPUConfig(num_shard=)",
    ),
    "a package that is not installed": Program(
        "try:\n    import nobody_has_this\n"
        "except ImportError:\n    raise ImportError('Install it.')",
        stopped_by="nobody_has_this",
    ),
    "an import of a package": Program("import needs_gan", stopped_by="tensorflow.contrib.gan"),
    "a requirement of a package": Program(
        "from lazy_datasets import testing", stopped_by="nobody_has_dill"
    ),
    "a module beside the script": Program(
        "import gan_metrics", stopped_by="tensorflow.contrib.gan"
    ),
}
PROGRAMS = {**RUNNING, **STOPPED}

PACKAGES = {
    "lazy_datasets/__init__.py": "import tensorflow as tf\nfrom etils import epy\n"
    "with epy.lazy_imports():\n    from lazy_datasets import testing\n    import nobody_has_beam\n"
    "def load(name):\n    import nobody_has_pandas",
    "lazy_datasets/testing/__init__.py": "from lazy_datasets.testing.feature_test_case import f",
    "lazy_datasets/testing/feature_test_case.py": "import nobody_has_dill\nf = None",
    "lazy_datasets/conftest.py": "import nobody_has_pytest",
    "etils/__init__.py": "",
    "etils/epy.py": "",
    "with_extra/__init__.py": "import tensorflow as tf\nfrom . import core\n"
    "try:\n    from . import plots\nexcept ImportError:\n    plots = None",
    "with_extra/core.py": "import __main__",
    "with_extra/plots.py": "import nobody_has_seaborn",
    "needs_gan.py": "from tensorflow.contrib import gan",
    "distutils_like.py": "LooseVersion = str",
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory for a program, with a module beside it and packages installed."""
    for name, source in PACKAGES.items():
        samples.write_file(tmp_path / "site-packages", name, source)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    samples.write_file(
        tmp_path, "program/gan_metrics.py", "from tensorflow.contrib import gan\ndef run(): pass"
    )
    return tmp_path / "program"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_stopped_by_what_stops_it_and_by_nothing_else(
    name: str, directory: Path
) -> None:
    program = PROGRAMS[name]
    script = samples.write_file(directory, "program.py", program.source)
    report = migration_report.analyze_program(script, arguments=program.arguments.split())
    in_packages = [finding for package in report.packages for finding in package.findings]
    stops = [finding.written for finding in (*report.findings, *in_packages) if finding.stops]
    unreached = [finding.written for finding in report.unreached_findings]
    assert (" ".join(stops), " ".join(unreached)) == (program.stopped_by, program.unreached)
    assert report.runs == (not program.stopped_by)
