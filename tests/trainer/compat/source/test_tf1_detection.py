from pathlib import Path

import pytest

from trainer.compat.source import program, tf1_detection

PROGRAMS = Path(__file__).parents[1] / "programs"


def sign_of(directory: Path, **sources: str) -> str | None:
    for name, source in sources.items():
        directory.joinpath(f"{name}.py").write_text(source)
    found = tf1_detection.find_tf1_evidence(program.program_from_script(str(directory / "main.py")))
    return None if found is None else f"{Path(found.file).name}:{found.line} {found.name}"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("tf.Session()", "tf.Session"),
        ("tf.train.AdamOptimizer(1e-3)", "tf.train.AdamOptimizer"),
        ("tf.contrib.tpu.TPUConfig()", "tf.contrib.tpu.TPUConfig"),
        ("tf.estimator.inputs.numpy_input_fn()", "tf.estimator.inputs.numpy_input_fn"),
    ],
)
def test_a_name_that_only_tensorflow_1_has_is_a_sign(tmp_path: Path, line: str, name: str) -> None:
    assert sign_of(tmp_path, main=f"import tensorflow as tf\n{line}") == f"main.py:2 {name}"


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\ntf.function(tf.nn.relu)\ntf.keras.layers.Dense(3)",
        "import tensorflow as tf\ntf.compat.v1.train.Saver()\ntf.estimator.Estimator(f)",
        "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\ntf.Session()",
        "import tensorflow as tf\ntf.not_a_name_at_all()\ntf.__version__",
        "import json",
    ],
)
def test_what_tensorflow_2_has_is_none(tmp_path: Path, source: str) -> None:
    assert sign_of(tmp_path, main=source) is None


def test_contrib_is_a_sign_under_any_name(tmp_path: Path) -> None:
    source = "import tensorflow.compat.v1 as tf\ntf.contrib.training.HParams()"
    assert sign_of(tmp_path, main=source) == "main.py:2 tf.contrib.training.HParams"
    source = "from tensorflow.contrib import slim"
    assert sign_of(tmp_path, main=source) == "main.py:1 tensorflow.contrib.slim"


def test_modules_beside_the_script_count(tmp_path: Path) -> None:
    modeling = "import tensorflow as tf\ntf.get_variable('w', [])"
    main = "import os, modeling\nmodeling.run()"
    assert sign_of(tmp_path, main=main, modeling=modeling) == "modeling.py:2 tf.get_variable"


def test_modules_that_import_one_another_are_read_once(tmp_path: Path) -> None:
    assert sign_of(tmp_path, main="import a", a="import b", b="import a\nimport main") is None


def test_a_file_with_a_mistake_is_left_to_python(tmp_path: Path) -> None:
    assert sign_of(tmp_path, main="import broken", broken="def f(:") is None


def test_the_documented_programs_are_of_tensorflow_1() -> None:
    for name in ("mnist.py", "mnist_one_shot.py"):
        found = tf1_detection.find_tf1_evidence(program.program_from_script(str(PROGRAMS / name)))
        assert found is not None
        assert found.name == "tensorflow.contrib.tpu.python.tpu.tpu_config"
