from typing import Any

import numpy as np
import pytest

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType


@pytest.mark.parametrize("value", [1, np.int64(2)])
def test_whole_numbers_pass(value: Any) -> None:
    validation.check_integer("runs", value, least=1)


@pytest.mark.parametrize(
    ("value", "error"), [(0, InvalidSetting), (1.5, InvalidType), (True, InvalidType)]
)
def test_others_are_named_and_shown(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"runs is {value}. Give a whole number of at least 1"):
        validation.check_integer("runs", value, least=1)
