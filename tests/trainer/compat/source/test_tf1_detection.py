from pathlib import Path

import pytest

from trainer.compat.source import tf1_detection, user_program

PROGRAMS = Path(__file__).parents[1] / "programs"


def describe_evidence(directory: Path, **sources: str) -> str | None:
    """Write the sources as modules; return the evidence in main.py as "FILE:LINE NAME"."""
    for name, source in sources.items():
        directory.joinpath(f"{name}.py").write_text(source)
    evidence = tf1_detection.find_tf1_evidence(
        user_program.program_from_script(str(directory / "main.py"))
    )
    return (
        None if evidence is None else f"{Path(evidence.file).name}:{evidence.line} {evidence.name}"
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("tf.Session()", "tf.Session"),
        ("tf.train.AdamOptimizer(1e-3)", "tf.train.AdamOptimizer"),
        ("tf.contrib.tpu.TPUConfig()", "tf.contrib.tpu.TPUConfig"),
        ("tf.estimator.inputs.numpy_input_fn()", "tf.estimator.inputs.numpy_input_fn"),
    ],
)
def test_name_that_only_tensorflow_1_has_is_evidence(tmp_path: Path, line: str, name: str) -> None:
    assert (
        describe_evidence(tmp_path, main=f"import tensorflow as tf\n{line}") == f"main.py:2 {name}"
    )


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
def test_names_that_tensorflow_2_has_are_no_evidence(tmp_path: Path, source: str) -> None:
    assert describe_evidence(tmp_path, main=source) is None


V1 = "import tensorflow.compat.v1 as tf\nx = tf.placeholder(tf.float32, [None, 3])\n"


@pytest.mark.parametrize("value", ["x.shape[-1].value", "x.get_shape()[1].value"])
def test_the_value_of_a_dimension_is_evidence_in_a_program_of_v1(
    tmp_path: Path, value: str
) -> None:
    assert describe_evidence(tmp_path, main=f"{V1}print({value})") == f"main.py:3 {value}"
    helper = f"def f(x):\n    return {value}"
    assert describe_evidence(tmp_path, main=f"{V1}import a", a=helper) == f"a.py:2 {value}"
    first = f"{V1}print({value})\nimport a"
    assert describe_evidence(tmp_path, main=first, a="from tensorflow import contrib") == (
        "a.py:1 tensorflow.contrib"
    )


@pytest.mark.parametrize(
    "source",
    [
        f"{V1}tf.disable_v2_behavior()\nx.shape[1].value",
        f"{V1}tf.disable_v2_tensorshape()\nx.shape[1].value",
        f"{V1}import tensorflow\nx.shape[1].value",
        f"{V1}import tensorflow.compat.v2 as tf2\nx.shape[1].value",
        f"{V1}x.shape.dims[1].value\nvalues[1].value",
        f"{V1}try:\n    x.shape[1].value\nexcept AttributeError:\n    pass",
        f"{V1}n = x.shape[1].value if hasattr(x.shape[1], 'value') else x.shape[1]",
        "x.shape[1].value",
    ],
)
def test_other_values_and_values_in_other_programs_are_no_evidence(
    tmp_path: Path, source: str
) -> None:
    assert describe_evidence(tmp_path, main=source) is None


def test_contrib_is_evidence_below_every_module(tmp_path: Path) -> None:
    source = "import tensorflow.compat.v1 as tf\ntf.contrib.training.HParams()"
    assert describe_evidence(tmp_path, main=source) == "main.py:2 tf.contrib.training.HParams"
    source = "from tensorflow.contrib import slim"
    assert describe_evidence(tmp_path, main=source) == "main.py:1 tensorflow.contrib.slim"


def test_modules_that_the_script_imports_are_searched(tmp_path: Path) -> None:
    modeling = "import tensorflow as tf\ntf.get_variable('w', [])"
    main = "import os, modeling\nmodeling.run()"
    assert (
        describe_evidence(tmp_path, main=main, modeling=modeling) == "modeling.py:2 tf.get_variable"
    )


def test_modules_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    assert (
        describe_evidence(tmp_path, main="import a", a="import b", b="import a\nimport main")
        is None
    )


def test_file_with_a_syntax_error_is_skipped(tmp_path: Path) -> None:
    assert describe_evidence(tmp_path, main="import broken", broken="def f(:") is None


def test_documented_programs_are_written_for_tensorflow_1() -> None:
    for name in ("mnist.py", "mnist_one_shot.py"):
        evidence = tf1_detection.find_tf1_evidence(
            user_program.program_from_script(str(PROGRAMS / name))
        )
        assert evidence is not None
        assert evidence.name == "tensorflow.contrib.tpu.python.tpu.tpu_config"
