from pathlib import Path

from tests.trainer.migration.samples import findings_of
from trainer.migration.names.classification import NameStatus

SOURCE = """
    import tensorflow as tf
    from tensorflow.contrib.tpu import RunConfig
    tf.contrib.tpu.TPUConfig(1, num_shard=8, num_cores_per_replica=None)
    RunConfig(modeldir="x", master="")
    tf.contrib.tpu.TPUEstimator(model_fn, embedding_config_spec=spec)
    tf.estimator.tpu.TPUEstimator(model_fn, embedding_config_spec=None)
    tf.contrib.data.TFRecordDataset("x", buffer_size=100)
"""


def test_an_argument_that_is_not_taken_is_found(tmp_path: Path) -> None:
    findings = findings_of(tmp_path, SOURCE)
    wrong = {name: name_status for name, name_status in findings.items() if "(" in name}
    assert {
        name: (name_status.lines, name_status.kind, name_status.says)
        for name, name_status in wrong.items()
    } == {
        "tf.contrib.tpu.TPUConfig(num_shard=)": (
            (4,),
            NameStatus.UNKNOWN,
            "Did you mean num_shards?",
        ),
        "RunConfig(modeldir=)": ((5,), NameStatus.UNKNOWN, "Did you mean model_dir?"),
    }


CALLS = """
    from tensorflow.contrib import distribute
    from tensorflow.contrib.distribute import TPUStrategy
    isinstance(None, TPUStrategy)
    distribute.TPUStrategy(resolver)
    distribute.OneDeviceStrategy("/gpu:0")
"""


def test_a_class_that_can_only_be_imported_is_gone_where_it_is_called(tmp_path: Path) -> None:
    findings = findings_of(tmp_path, CALLS)
    gone = [name for name, name_status in findings.items() if name_status.kind is NameStatus.GONE]
    assert gone == ["distribute.TPUStrategy()"]
    assert findings[gone[0]].lines == (5,)
    assert "Use TPUEstimator" in findings[gone[0]].says
