import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.tpuserve import saved_models
from tpuserve import description, metagraph


@pytest.fixture
def found(tmp_path: Path) -> metagraph.SavedModel:
    return metagraph.read(saved_models.write(saved_models.half_plus_two(), tmp_path / "1"))


def test_data_is_plain_json(found: metagraph.SavedModel) -> None:
    data = json.loads(json.dumps(description.as_data(found)))
    tpu = data["metagraphs"][1]
    assert tpu["tags"] == ["serve", "tpu"]
    assert tpu["tpu_computations"][0]["tpu_ops"] == {"Mul": 2, "Add": 1}
    assert tpu["signatures"]["serving_default"]["outputs"]["y"]["shape"] == [None, 1]


def test_tables_show_both_metagraphs_and_where_ops_run(found: metagraph.SavedModel) -> None:
    text = io.StringIO()
    description.print_tables(found, Console(file=text, width=100))
    for expected in (
        "metagraph {serve}, TensorFlow 2.21.0",
        "metagraph {serve, tpu}",
        "float32 [?, 1]",
        "on the TPU   3 ops: Mul 2, Add 1",
        "its host   1 ops: AsString 1",
    ):
        assert expected in text.getvalue()
