import ast

from trainer.compat.source.name_references import NameReference, find_name_references


def find_attribute_names(source: str) -> list[tuple[int, str]]:
    """Return (line, full name) of each reference in a source that is not an import."""
    return [
        (reference.line, reference.name)
        for reference in find_name_references(ast.parse(source))
        if not reference.is_import
    ]


def test_full_name_does_not_depend_on_the_import_alias() -> None:
    assert find_attribute_names("import tensorflow as t\nt.nn.relu(t.float32)") == [
        (2, "tensorflow.float32"),
        (2, "tensorflow.nn.relu"),
    ]


def test_reference_keeps_the_name_as_written() -> None:
    source = "import tensorflow.compat.v1 as tf\ntf.Session()"
    assert NameReference(2, "tensorflow.compat.v1.Session", "tf.Session") in find_name_references(
        ast.parse(source)
    )


def test_names_are_followed_through_assignments() -> None:
    source = "import tensorflow as tf\nflags = tf.flags\nFLAGS = flags.FLAGS\nFLAGS.x"
    assert (4, "tensorflow.flags.FLAGS.x") in find_attribute_names(source)


def test_from_import_binds_the_submodule() -> None:
    source = "from tensorflow.contrib import tpu as t\nt.TPUConfig()"
    assert find_attribute_names(source) == [(2, "tensorflow.contrib.tpu.TPUConfig")]


def test_import_of_a_path_without_alias_binds_the_root() -> None:
    source = "import tensorflow.contrib.slim\ntensorflow.contrib.slim.nets"
    assert find_attribute_names(source) == [(2, "tensorflow.contrib.slim.nets")]
    assert [
        reference.name
        for reference in find_name_references(ast.parse(source))
        if reference.is_import
    ] == [
        "tensorflow",
        "tensorflow.contrib.slim",
    ]


def test_first_of_two_alternative_imports_counts() -> None:
    source = (
        "try:\n import tensorflow.compat.v1 as tf\nexcept ImportError:\n import tensorflow as tf\n"
        "tf.Session()"
    )
    assert find_attribute_names(source) == [(5, "tensorflow.compat.v1.Session")]


def test_tf_assigned_from_compat_v1_means_compat_v1() -> None:
    source = "import tensorflow as tf\ntf = tf.compat.v1\ntf.Session()"
    assert (3, "tensorflow.compat.v1.Session") in find_attribute_names(source)


def test_other_modules_and_relative_imports_are_ignored() -> None:
    assert (
        find_name_references(
            ast.parse("import numpy as tf\nfrom .tensorflow import x\ntf.zeros(x.y)")
        )
        == []
    )
