"""Every op of the installed TensorFlow and of tensorflow_text has been reviewed."""

from tools import op_families as tool
from tpuserve.saved_model import op_imports
from tpuserve.saved_model.op_packages import TENSORFLOW_TEXT, find_package
from tpuserve.untrusted.op_families import PATH, Permission, op_families, parse_families


def test_every_registered_op_is_in_a_family() -> None:
    _register_ops_of_tensorflow_lite()
    op_imports.import_ops(TENSORFLOW_TEXT)
    registered = tool.registered_ops()
    # Other tests of this process may have imported libraries of their own.
    own = {
        op for name, ops in op_imports._named.items() if op_imports.is_library(name) for op in ops
    }
    missing = {op: registered[op] for op in tool.unclassified_ops(registered) if op not in own}
    assert not missing, (
        f"{len(missing)} ops of this TensorFlow are in no family, and are refused in models that "
        f"are not trusted: {missing}. Run `python -m tools.op_families`, read what the kernel of "
        f"each does, and move it from 'not reviewed' to a family in {PATH}."
    )


def test_ops_of_tensorflow_text_are_told_from_others() -> None:
    families = op_families()
    named = {op for op, family in families.items() if "of tensorflow_text" in family.name}
    assert named == {op for op in families if find_package(op) == TENSORFLOW_TEXT}
    assert not [op for op in families.keys() - named if find_package(op) is not None]


def test_no_op_is_in_two_families() -> None:
    families = parse_families(PATH.read_text(encoding="utf-8"))
    ops = [op for names in families.values() for op in names]
    assert len(ops) == len(set(ops)) == len(op_families())


def test_file_is_as_the_tool_writes_it() -> None:
    text = PATH.read_text(encoding="utf-8")
    comment = text.partition("\n\n")[0]
    assert tool.format_families(comment, parse_families(text)) == text


def test_tool_shows_ops_without_a_family_and_ops_that_are_not_reviewed() -> None:
    assert tool.unclassified_ops(["MatMul", "MatMulV9", "Abs"]) == ["MatMulV9"]


def test_file_ops_name_the_input_with_the_path() -> None:
    for op, family in op_families().items():
        if family.permission is Permission.FILE:
            assert family.path_input == (1 if op.startswith("InitializeTable") else 0)


def _register_ops_of_tensorflow_lite() -> None:
    """Run TensorFlow Lite's converter, which registers ops at its first run in a process."""
    import tensorflow as tf

    function = tf.function(tf.abs).get_concrete_function(tf.TensorSpec([1], tf.float32))
    tf.lite.TFLiteConverter.from_concrete_functions([function]).convert()
