from pathlib import Path

from tests.trainer.migration.samples import findings_of

SOURCE = """
    import tensorflow as tf
    from tensorflow.contrib import layers

    def f(layers):
        layers.append(1)

    def g():
        layers = []
        layers.append(1)

    def h():
        tf1 = tf.compat.v1
        return layers.flatten(tf1.ones([1]))
"""


def test_a_variable_of_a_function_is_no_module_of_the_same_name(tmp_path: Path) -> None:
    findings = findings_of(tmp_path, SOURCE)
    assert "layers.append" not in findings
    assert findings["layers.flatten"].name == "tensorflow.contrib.layers.flatten"
    assert "tf1.ones" in findings
