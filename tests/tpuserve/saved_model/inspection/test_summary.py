import json
from pathlib import Path
from typing import Any

import pytest

from tests.tpuserve import saved_models
from tests.tpuserve.saved_models import WORDS
from tpuserve.saved_model import metagraph, summary


def as_json(directory: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(
        json.dumps(
            summary.saved_model_to_dict(metagraph.read_saved_model(directory)), allow_nan=False
        )
    )
    return data


@pytest.fixture(scope="module")
def words() -> dict[str, Any]:
    return as_json(WORDS)


def test_description_is_valid_json(tmp_path: Path) -> None:
    data = as_json(saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / "1"))
    tpu = data["metagraphs"][1]
    assert tpu["tags"] == ["serve", "tpu"]
    assert tpu["tpu_computations"][0]["tpu_ops"] == {"Mul": 2, "Add": 1}
    assert tpu["signatures"]["serving_default"]["outputs"]["y"]["shape"] == [None, 1]


def test_batch_function_and_its_computation_are_included(words: dict[str, Any]) -> None:
    tpu = words["metagraphs"][1]
    (batch,) = tpu["batch_functions"]
    assert batch["allowed_batch_sizes"] == [1, 4]
    assert batch["batch_timeout_micros"] == 5000
    assert tpu["tpu_computations"][0]["batched_by"] == batch["function"]


def test_all_variables_are_included(words: dict[str, Any]) -> None:
    assert words["metagraphs"][0]["variables"][0] == {
        "name": "model/dense/bias",
        "dtype": "float32",
        "shape": [2],
        "bytes": 8,
    }


def test_assets_extra_files_and_warm_up_requests_are_included(words: dict[str, Any]) -> None:
    assert words["metagraphs"][1]["assets"] == ["vocabulary.txt"]
    assert words["extra_files"] == ["tf_serving_warmup_requests"]
    assert words["problems"] == []
    assert words["warm_up"][1] == {
        "kind": "predict",
        "signature_name": "serving_default",
        "inputs": {"words": {"name": "words", "dtype": "string", "shape": [4, 5]}},
    }


def test_counts_are_sorted_largest_first() -> None:
    assert list(summary.sort_by_count({"Add": 1, "Mul": 3, "Abs": 1})) == ["Mul", "Abs", "Add"]
