"""Models x devices: what replicas learn together is what the CPU learns alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance import networks
from tests.conformance.devices import CPU, Device, cores, variables
from tests.conformance.networks import Network

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

_STEPS = 5


def _trained(network: Network, device: Device, model_dir: Path) -> dict[str, np.ndarray[Any, Any]]:
    with device.chosen():
        estimator = device.estimator(network.model_fn, model_dir, batch_size=networks.ROWS)
        estimator.train(network.input_fn, max_steps=_STEPS)
    return variables(estimator)


@pytest.mark.parametrize("network", networks.ALL, ids=lambda network: network.name)
def test_replicas_learn_what_the_cpu_learns(network: Network, tmp_path: Path) -> None:
    expected = _trained(network, CPU, tmp_path / "cpu")
    assert expected["global_step"] == _STEPS
    for device in (cores(4, compiled=True), cores(4)):
        found = _trained(network, device, tmp_path / str(device))
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            atol = network.tolerance * max(1.0, np.abs(value).max())
            np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)
