from pathlib import Path

from tests.trainer.migration.samples import findings_of

SOURCE = """
    import tensorflow as tf

    try:
        flags = tf.flag
    except AttributeError:
        flags = tf.oldflags

    try:
        layer = tf.layer
    except KeyError:
        layer = None

    try:
        version = tf.versio
    except Exception:
        version = None

    try:
        print("training")
        tf.train.it()
    except Exception:
        raise SystemExit(1)

    rate = tf.train.noam_decay(1) if hasattr(tf.train, "noam_decay") else tf.train.noam(1)
    if hasattr(tf, "contrib"):
        tf.contrib.nothing()
    elif hasattr(tf, name):
        tf.nothing()
"""


def test_a_name_that_a_program_does_without_is_left_out(tmp_path: Path) -> None:
    names = {
        name for name, finding in findings_of(tmp_path, SOURCE).items() if not finding.kind.runs
    }
    assert names == {"tf.oldflags", "tf.layer", "tf.train.it", "tf.train.noam", "tf.nothing"}
