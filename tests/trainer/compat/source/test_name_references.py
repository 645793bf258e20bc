import ast

from trainer.compat.source.name_references import NameReference, find_name_references


def names(source: str) -> list[tuple[int, str]]:
    return [
        (each.line, each.name)
        for each in find_name_references(ast.parse(source))
        if not each.is_import
    ]


def test_a_name_is_said_whole_however_tensorflow_is_called() -> None:
    assert names("import tensorflow as t\nt.nn.relu(t.float32)") == [
        (2, "tensorflow.float32"),
        (2, "tensorflow.nn.relu"),
    ]


def test_a_use_shows_what_the_program_writes() -> None:
    source = "import tensorflow.compat.v1 as tf\ntf.Session()"
    assert NameReference(2, "tensorflow.compat.v1.Session", "tf.Session") in find_name_references(
        ast.parse(source)
    )


def test_names_are_followed_through_assignments() -> None:
    source = "import tensorflow as tf\nflags = tf.flags\nFLAGS = flags.FLAGS\nFLAGS.x"
    assert (4, "tensorflow.flags.FLAGS.x") in names(source)


def test_an_import_of_a_part_binds_that_part() -> None:
    source = "from tensorflow.contrib import tpu as t\nt.TPUConfig()"
    assert names(source) == [(2, "tensorflow.contrib.tpu.TPUConfig")]


def test_an_import_by_path_without_a_name_binds_the_root() -> None:
    source = "import tensorflow.contrib.slim\ntensorflow.contrib.slim.nets"
    assert names(source) == [(2, "tensorflow.contrib.slim.nets")]
    assert [each.name for each in find_name_references(ast.parse(source)) if each.is_import] == [
        "tensorflow",
        "tensorflow.contrib.slim",
    ]


def test_of_two_imports_that_are_tried_the_first_counts() -> None:
    source = (
        "try:\n import tensorflow.compat.v1 as tf\nexcept ImportError:\n import tensorflow as tf\n"
        "tf.Session()"
    )
    assert names(source) == [(5, "tensorflow.compat.v1.Session")]


def test_tf_that_is_made_compat_v1_is_that() -> None:
    source = "import tensorflow as tf\ntf = tf.compat.v1\ntf.Session()"
    assert (3, "tensorflow.compat.v1.Session") in names(source)


def test_other_modules_and_relative_imports_are_left_alone() -> None:
    assert (
        find_name_references(
            ast.parse("import numpy as tf\nfrom .tensorflow import x\ntf.zeros(x.y)")
        )
        == []
    )
