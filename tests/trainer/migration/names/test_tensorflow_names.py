import pytest

from trainer.compat.source.name_references import NameReference
from trainer.migration.names import tensorflow_names
from trainer.migration.names.classification import NameClassification, NameStatus


def classify_name(name: str, *, tf1: bool = True, is_import: bool = False) -> NameClassification:
    spelling = name.replace("tensorflow", "tf", 1)
    return tensorflow_names.classify(
        NameReference(1, name, name if is_import else spelling, is_import), tf1=tf1
    )


@pytest.mark.parametrize(
    "name",
    [
        "tensorflow",
        "tensorflow.app.flags.DEFINE_string",
        "tensorflow.compat.v1.train.Saver.save",
        "tensorflow.layers.dense",
        "tensorflow.nn.rnn_cell.LSTMCell",
        "tensorflow.__version__",
        "tensorflow.__version__.split",
        "tensorflow.logging.__dict__",
        "tensorflow.compat.v1.logging.__name__.upper",
    ],
)
def test_a_public_name_of_tensorflow_works(name: str) -> None:
    assert classify_name(name) == NameClassification(NameStatus.WORKS)


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("tensorflow.contrib.tpu.TPUEstimator", "trainer.TPUEstimator"),
        ("tensorflow.contrib.tpu.python.tpu.tpu_config.TPUConfig", "trainer.TPUConfig"),
        ("tensorflow.contrib.data.TFRecordDataset", "tensorflow.compat.v1.data.TFRecordDataset"),
        ("tensorflow.estimator.ModeKeys.TRAIN", "trainer.ModeKeys"),
        ("tensorflow.compat.v1.estimator.tpu.TPUEstimator", "trainer.TPUEstimator"),
        (
            "tensorflow_estimator.python.estimator.tpu.tpu_estimator.TPUEstimator",
            "trainer.TPUEstimator",
        ),
        ("tensorflow.python.estimator.run_config.RunConfig", "trainer.RunConfig"),
        (
            "tensorflow.keras.estimator.model_to_estimator",
            "trainer.compat.keras_estimator.model_to_estimator",
        ),
    ],
)
def test_a_name_that_is_supplied_comes_with_its_home(name: str, home: str) -> None:
    assert classify_name(name, is_import=True) == NameClassification(NameStatus.SUPPLIED, home)


def test_what_an_imported_module_inside_of_tensorflow_has_is_looked_for_there() -> None:
    def kind(name: str) -> NameStatus:
        name = f"rewriter_config_pb2.{name}"
        return tensorflow_names.classify(
            NameReference(1, f"tensorflow.core.protobuf.{name}", name), tf1=True
        ).kind

    assert kind("RewriterConfig") is NameStatus.WORKS
    assert kind("RewriterConfig.OFF") is NameStatus.WORKS
    assert classify_name("tensorflow.core.protobuf").kind is NameStatus.UNKNOWN


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tensorflow.contrib.tpu.__file__", NameStatus.SUPPLIED),
        ("tensorflow.contrib.gan.__file__", NameStatus.GONE),
        ("tensorflow.estimator.Estimator.__init__", NameStatus.SUPPLIED),
        ("tensorflow.python.framework.ops.__name__", NameStatus.WORKS),
        ("tensorflow.loggin.__name__", NameStatus.UNKNOWN),
    ],
)
def test_a_special_name_is_as_its_module(name: str, kind: NameStatus) -> None:
    assert classify_name(name, is_import=True).kind is kind


def test_the_same_name_has_other_homes_in_the_two_versions() -> None:
    assert classify_name("tensorflow.estimator.tpu.TPUEstimator").kind is NameStatus.SUPPLIED
    assert classify_name("tensorflow.estimator.tpu.TPUEstimator", tf1=False).kind is NameStatus.GONE
    assert classify_name("tensorflow.Session").kind is NameStatus.WORKS
    assert classify_name("tensorflow.Session", tf1=False).kind is NameStatus.UNKNOWN


def test_a_module_of_version_1_hides_that_of_version_2() -> None:
    # tf.losses.Loss exists in TensorFlow 2 only: in a TensorFlow 1 program tf.losses is
    # tf.compat.v1.losses.
    assert classify_name("tensorflow.losses.Loss", tf1=False).kind is NameStatus.WORKS
    assert classify_name("tensorflow.losses.Loss").kind is NameStatus.UNKNOWN


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        ("tensorflow.contrib.gan", "tensorflow-gan"),
        ("tensorflow.examples.tutorials.mnist", "tf.keras.datasets.mnist"),
    ],
)
def test_a_name_that_is_gone_comes_with_what_replaces_it(name: str, replacement: str) -> None:
    verdict = classify_name(name)
    assert verdict.kind is NameStatus.GONE
    assert replacement in verdict.says


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("tensorflow.Sesion", "Session"),
        ("tensorflow.train.AdamOptimiser", "AdamOptimizer"),
        ("tensorflow.contrib.tpu.TPUEstimater", "TPUEstimator"),
        ("tensorflow.estimator.DNNClassifer", "DNNClassifier"),
    ],
)
def test_a_name_that_nobody_knows_comes_with_near_ones(name: str, near: str) -> None:
    verdict = classify_name(name)
    assert verdict.kind is NameStatus.UNKNOWN
    assert near in verdict.says


def test_a_module_inside_of_tensorflow_works_where_it_is_still_there() -> None:
    there = classify_name("tensorflow.python.framework.ops.Graph", is_import=True)
    assert there.kind is NameStatus.WORKS
    assert "private module of TensorFlow" in there.says
    assert (
        classify_name("tensorflow.python.framework.ops.Graf", is_import=True).kind
        is NameStatus.GONE
    )


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("ops.control_flow_ops.while_loop", "tensorflow.python.ops.while_loop.while_loop"),
        ("training.tracking.base.Trackable", "tensorflow.python.trackable.base"),
        ("eager.profiler.start", "trainer.compat.eager_profiler"),
    ],
)
def test_a_name_that_moved_inside_of_tensorflow_is_supplied(name: str, home: str) -> None:
    verdict = classify_name(f"tensorflow.python.{name}", is_import=True)
    assert (verdict.kind, verdict.says) == (NameStatus.SUPPLIED, home)


def test_a_module_inside_of_tensorflow_cannot_be_reached_as_an_attribute() -> None:
    assert "import" in classify_name("tensorflow.python.framework.ops").says


@pytest.mark.parametrize("is_import", [True, False])
def test_a_module_inside_of_contrib_need_not_be_imported(is_import: bool) -> None:
    name = "tensorflow.contrib.tpu.python.tpu.tpu_config.TPUConfig"
    assert classify_name(name, is_import=is_import).kind is NameStatus.SUPPLIED
