"""Training each model on each device gives the same variables as training on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance import networks
from tests.conformance.devices import CPU, Device, cores, variables
from tests.conformance.networks import Network

pytestmark = [pytest.mark.numeric, pytest.mark.first]

_STEPS = 5
# The networks that are trained without XLA too: beside the optimizer's sums, their replicas
# communicate, branch, round, or assign variables. The other networks have the sums alone.
_WITHOUT_XLA = (
    "clipped_gradients",
    "accumulated_gradients",
    "batch_norm",
    "cross_replica_norm",
    "branches",
    "normed_rnn",
    "bfloat16",
)
# The networks that are trained on PJRT devices. The others pass as well, but compiling all of them
# would take too long.
_ON_PJRT = ("batch_norm", "bfloat16", "cross_replica_norm")
# The network that `make test` trains.
_QUICK = "cross_replica_norm"


def _train_variables(
    network: Network, device: Device, model_dir: Path
) -> dict[str, np.ndarray[Any, Any]]:
    with device.activate():
        estimator = device.estimator(network.model_fn, model_dir, batch_size=networks.ROWS)
        estimator.train(network.input_fn, max_steps=_STEPS)
    return variables(estimator)


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(network, id=network.name, marks=[pytest.mark.slow] * (network.name != _QUICK))
        for network in networks.ALL
    ],
)
def test_replicas_learn_what_the_cpu_learns(network: Network, tmp_path: Path) -> None:
    devices = [cores(4, compiled=True)]
    if network.name in _WITHOUT_XLA:
        devices.append(cores(4))
    if network.name in _ON_PJRT:
        devices.append(Device(4, is_pjrt=True))
    expected = _train_variables(network, CPU, tmp_path / "cpu")
    assert expected["global_step"] == _STEPS
    for device in devices:
        actual = _train_variables(network, device, tmp_path / str(device))
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            atol = network.tolerance * max(1.0, np.abs(value).max())
            np.testing.assert_allclose(
                actual[name], value, rtol=0, atol=atol, err_msg=f"{name} on {device}"
            )
