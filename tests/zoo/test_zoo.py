"""Models of other authors are converted and examined; docs/zoo.md has a table of the results.

`make zoo` examines all models, `make zoo ARGS=GRU,BERT` some of them, and pytest alone six models.
`make zoo` replaces the rows of the examined models in the table.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zoo import models, table
from tests.zoo.examination import examine
from tests.zoo.zoo_model import ZooModel
from tpuserve.compilation.compiler import Compiler

pytestmark = pytest.mark.nightly

# The models whose rows in the document are to be replaced: "all", or parts of their names with
# commas between them. If empty, the models of CI are compared with the document.
_CHOSEN = os.environ.get("TPUSERVE_ZOO", "")


def _choose_models() -> tuple[ZooModel, ...]:
    if _CHOSEN in ("", "all"):
        return models.ALL if _CHOSEN else models.IN_CI
    parts = _CHOSEN.split(",")
    return tuple(model for model in models.ALL if any(part in model.name for part in parts))


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler() as entered:
        yield entered


# TensorFlow's feature columns call a deprecated function of Keras.
@pytest.mark.filterwarnings("ignore:`layer.add_variable` is deprecated:UserWarning")
@pytest.mark.parametrize("model", _choose_models(), ids=lambda model: model.name.split(",")[0])
def test_model_is_found_as_the_document_says(
    model: ZooModel, tmp_path: Path, compiler: Compiler
) -> None:
    examination = examine(model, tmp_path, compiler)
    if _CHOSEN:
        table.write_results([examination])
    assert table.stable(examination) == table.read_results(model.name), examination.failures
