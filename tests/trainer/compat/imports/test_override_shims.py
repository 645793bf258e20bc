from types import ModuleType
from typing import Any

import pytest

from trainer.compat.imports import override_shims


@pytest.fixture
def base() -> Any:
    """Return a class that passes a mask to its method, as today's tf_keras does."""

    class BatchNormalizationBase:
        def _moments(self, inputs: str, *, mask: str | None = None) -> str:
            return f"{inputs} masked by {mask}"

        def call(self, mask: str | None = None) -> str:
            return self._moments("rows", mask=mask)

    module = ModuleType("batch_normalization")
    module.BatchNormalizationBase = BatchNormalizationBase  # type: ignore[attr-defined]
    override_shims.install_override_shims(module)
    return BatchNormalizationBase


def test_override_without_a_mask_is_called_without_it(base: Any) -> None:
    class SumMoments(base):
        def _moments(self, inputs: str) -> str:
            return "sum of " + str(super()._moments(inputs))

    class SumMomentsSubclass(SumMoments):
        pass

    assert SumMomentsSubclass().call() == "sum of rows masked by None"


def test_override_with_a_mask_gets_the_mask(base: Any) -> None:
    class MaskedMoments(base):
        def _moments(self, inputs: str, mask: str | None = None) -> str:
            return f"{mask} of {inputs}"

    assert MaskedMoments().call("some") == "some of rows"
