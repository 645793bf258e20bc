"""Training each model on each device gives the same variables as training on the CPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance import networks
from tests.conformance.devices import CPU, Device, cores, variables
from tests.conformance.networks import Network

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

_STEPS = 5
# The networks that are trained on PJRT devices. The others pass as well, but compiling all of them
# would take too long.
_ON_PJRT = ("batch_norm", "bfloat16", "cross_replica_norm")


def _train_variables(
    network: Network, device: Device, model_dir: Path
) -> dict[str, np.ndarray[Any, Any]]:
    with device.activate():
        estimator = device.estimator(network.model_fn, model_dir, batch_size=networks.ROWS)
        estimator.train(network.input_fn, max_steps=_STEPS)
    return variables(estimator)


def _assert_learns_what_the_cpu_learns(
    network: Network, devices: Sequence[Device], tmp_path: Path
) -> None:
    expected = _train_variables(network, CPU, tmp_path / "cpu")
    assert expected["global_step"] == _STEPS
    for device in devices:
        actual = _train_variables(network, device, tmp_path / str(device))
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            atol = network.tolerance * max(1.0, np.abs(value).max())
            np.testing.assert_allclose(actual[name], value, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("network", networks.ALL, ids=lambda network: network.name)
def test_replicas_learn_what_the_cpu_learns(network: Network, tmp_path: Path) -> None:
    _assert_learns_what_the_cpu_learns(network, (cores(4, compiled=True), cores(4)), tmp_path)


@pytest.mark.parametrize(
    "network",
    [network for network in networks.ALL if network.name in _ON_PJRT],
    ids=lambda network: network.name,
)
def test_pjrt_devices_learn_what_the_cpu_learns(network: Network, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    _assert_learns_what_the_cpu_learns(network, [Device(4, is_pjrt=True)], tmp_path)
