import pytest

from trainer.compat.source import api_names


@pytest.mark.parametrize(
    "name",
    ["Session", "train.Saver", "flags", "app.run", "layers.dense", "nn.rnn_cell.GRUCell"]
    + ["losses.softmax_cross_entropy", "estimator.inputs.numpy_input_fn", "estimator.tpu"],
)
def test_names_of_the_first_version_alone(name: str) -> None:
    assert api_names.is_public_name(name, "v1")
    assert not api_names.is_public_name(name, "v2")


@pytest.mark.parametrize(
    "name",
    ["Tensor", "nn.relu", "data.Dataset.map", "train.Example", "keras.layers.Dense"]
    + ["estimator.Estimator", "estimator.Estimator.train", "estimator.export.PredictOutput"],
)
def test_names_of_both_versions(name: str) -> None:
    assert api_names.is_public_name(name, "v1")
    assert api_names.is_public_name(name, "v2")


@pytest.mark.parametrize("name", ["function", "losses.MeanSquaredError", "metrics.Accuracy"])
def test_names_of_the_second_version(name: str) -> None:
    assert api_names.is_public_name(name, "v2")


@pytest.mark.parametrize("name", ["contrib", "Sesion", "nn.sesion", "estimator.DNNClassifier"])
def test_names_of_neither(name: str) -> None:
    assert not api_names.is_public_name(name, "v1")
    assert not api_names.is_public_name(name, "v2")


def test_names_near_one_that_is_not_there_are_those_of_its_module() -> None:
    assert "relu" in api_names.list_sibling_names("nn.rulu", "v2")
    assert "Session" in api_names.list_sibling_names("Sesion", "v1")
