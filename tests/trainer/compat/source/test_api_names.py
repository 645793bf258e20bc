import pytest

from trainer.compat.source import api_names


@pytest.mark.parametrize(
    "name",
    ["Session", "train.Saver", "flags", "app.run", "layers.dense", "nn.rnn_cell.GRUCell"]
    + ["losses.softmax_cross_entropy", "estimator.inputs.numpy_input_fn", "estimator.tpu"],
)
def test_v1_names_that_v2_lacks(name: str) -> None:
    assert api_names.is_public_name(name, "v1")
    assert not api_names.is_public_name(name, "v2")


@pytest.mark.parametrize(
    "name",
    ["Tensor", "nn.relu", "data.Dataset.map", "train.Example", "keras.layers.Dense"]
    + ["estimator.Estimator", "estimator.Estimator.train", "estimator.export.PredictOutput"],
)
def test_names_that_both_versions_have(name: str) -> None:
    assert api_names.is_public_name(name, "v1")
    assert api_names.is_public_name(name, "v2")


@pytest.mark.parametrize("name", ["function", "losses.MeanSquaredError", "metrics.Accuracy"])
def test_names_that_v2_has(name: str) -> None:
    assert api_names.is_public_name(name, "v2")


@pytest.mark.parametrize(
    "name", ["contrib", "Sesion", "nn.sesion", "estimator.BoostedTreesClassifier"]
)
def test_names_that_neither_version_has(name: str) -> None:
    assert not api_names.is_public_name(name, "v1")
    assert not api_names.is_public_name(name, "v2")


def test_siblings_of_an_unknown_name_are_the_names_of_its_module() -> None:
    assert "relu" in api_names.list_sibling_names("nn.rulu", "v2")
    assert "Session" in api_names.list_sibling_names("Sesion", "v1")
