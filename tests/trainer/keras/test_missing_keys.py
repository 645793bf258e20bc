import pytest

from tpuserve.errors import InvalidSetting, MissingKey
from trainer.keras.model.converted_model import NameMaps
from trainer.keras.step import features


def test_a_missing_input_of_a_keras_model_is_a_key_error_with_a_readable_text() -> None:
    with pytest.raises(KeyError) as error:
        features.select_model_inputs({"a": 1}, ["a", "b"], "model m")
    assert isinstance(error.value, MissingKey)
    assert isinstance(error.value, InvalidSetting)
    assert str(error.value).startswith("model m has the inputs a, b, and the features are a: b is")


def test_an_export_output_that_the_model_lacks_is_a_key_error() -> None:
    with pytest.raises(MissingKey, match="c is not an output"):
        NameMaps(None, {"c": dict}).check_output_names(["y"])
