import importlib

import pytest

from tests.preloaded.process import run_preloaded
from trainer.compat import contrib
from trainer.compat.contrib_module_aliases import MODULE_ALIASES


@pytest.mark.parametrize("name", contrib.__all__)
def test_every_name_in_all_exists(name: str) -> None:
    module = getattr(contrib, name)
    assert [supplied for supplied in module.__all__ if not hasattr(module, supplied)] == []
    with pytest.raises(AttributeError, match=f"tf.contrib.{name}.no_such_name is not"):
        module.no_such_name  # noqa: B018


def test_every_aliased_module_can_be_imported() -> None:
    for module in sorted(set(MODULE_ALIASES.values())):
        importlib.import_module(module)


def test_inner_modules_have_the_public_classes() -> None:
    from trainer.compat.contrib.tpu import tpu_config, tpu_estimator, tpu_optimizer

    assert tpu_estimator.TPUEstimator is contrib.tpu.TPUEstimator
    assert tpu_config.RunConfig is contrib.tpu.RunConfig
    assert tpu_optimizer.CrossShardOptimizer is contrib.tpu.CrossShardOptimizer


@pytest.mark.slow
def test_inner_modules_are_attributes_without_an_import() -> None:
    code = """if True:
        import tensorflow as tf
        contrib = tf.contrib
        estimator = contrib.tpu.python.tpu.tpu_estimator.TPUEstimator
        assert estimator is contrib.tpu.TPUEstimator
        assert contrib.layers.python.layers.layers.conv2d is contrib.layers.conv2d
        assert contrib.slim.python.slim.learning is contrib.slim.learning
        assert contrib.summary.summary_ops.scalar is contrib.summary.scalar
        assert contrib.rnn.python.ops.lstm_ops.LSTMBlockCell is contrib.rnn.LSTMBlockCell
        assert contrib.tensorboard.plugins.projector.visualize_embeddings
        from tensorflow.contrib import quantize
        from tensorflow.contrib.quantize.python import graph_matcher
        from tensorflow.contrib.slim.nets import resnet_v1
        assert contrib.slim.python.slim.nets.resnet_v1 is resnet_v1
        from tensorflow.contrib.losses.python.metric_learning import metric_loss_ops
        assert contrib.losses.metric_learning is metric_loss_ops
        try:
            quantize.create_training_graph
        except AttributeError as error:
            print(error)
        try:
            contrib.layers.python.nothing
        except AttributeError as error:
            print(error)
    """
    process = run_preloaded(["-c", f"import trainer.compat\n{code}"])
    assert process.returncode == 0, process.stderr[-2000:]
    assert "tf.contrib.layers.python.nothing is not" in process.stdout
    assert "Use the package tensorflow-model-optimization" in process.stdout


@pytest.mark.slow
def test_modules_of_a_package_that_is_not_installed_say_how_to_install_it() -> None:
    code = """if True:
        import sys
        sys.modules["tf_slim"] = None
        import tensorflow as tf
        for module in ("slim.nets.vgg", "losses.metric_learning"):
            try:
                __import__(f"tensorflow.contrib.{module}")
            except ModuleNotFoundError as error:
                print(error)
        try:
            tf.contrib.slim.nets
        except AttributeError as error:
            print(error)
    """
    process = run_preloaded(["-c", f"import trainer.compat\n{code}"])
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stdout.count("A package has it: pip install tf-slim.") == 3
