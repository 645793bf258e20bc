"""Ray's TensorflowTrainer trains a TPUEstimator program on a local cluster of two nodes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="make test-clusters runs it")

from ray.cluster_utils import Cluster

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
TIME_LIMIT = 600


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a cluster of two nodes, each with a processor for one worker."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    # The driver of Ray Train needs a processor too.
    nodes.add_node(num_cpus=2)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()


def test_two_nodes_train_what_one_process_trains(address: str, tmp_path: Path) -> None:
    import tensorflow as tf

    program = [str(EXAMPLES / "train.py"), "--max_steps=60", "--use_tpu"]
    subprocess.run(
        [
            *(sys.executable, str(EXAMPLES / "train_ray.py"), f"--address={address}"),
            *(f"--storage={tmp_path / 'ray'}", *program, str(tmp_path / "cluster")),
        ],
        check=True,
        timeout=TIME_LIMIT,
    )
    subprocess.run(
        [sys.executable, *program, str(tmp_path / "single")],
        check=True,
        timeout=TIME_LIMIT,
        env={**os.environ, "TPUSERVE_EMULATED_TPU": "1x2"},
    )
    readers = [tf.train.load_checkpoint(str(tmp_path / name)) for name in ("cluster", "single")]
    shapes = readers[0].get_variable_to_shape_map()
    assert readers[0].get_tensor("global_step") == 60
    assert shapes == readers[1].get_variable_to_shape_map()
    for name in shapes:
        actual, expected = (reader.get_tensor(name) for reader in readers)
        assert actual.tolist() == pytest.approx(expected.tolist(), rel=1e-4), name
