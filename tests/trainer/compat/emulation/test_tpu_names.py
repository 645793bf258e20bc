import pytest
from tensorflow.python.distribute.cluster_resolver.tpu import tpu_cluster_resolver

import tpuserve
from tpuserve.errors import TpuNotFound
from trainer.compat.contrib.cluster_resolver import TPUClusterResolver
from trainer.compat.emulation import tpu_names

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = tpu_cluster_resolver.TPUClusterResolver
    # So that it is put back.
    monkeypatch.setattr(resolver, "__init__", resolver.__init__)
    tpu_names.patch_cluster_resolver()


@pytest.mark.parametrize("name", ["demo-tpu", "grpc://10.0.0.2:8470", ["demo-tpu"], "", None])
def test_every_name_is_the_emulated_tpus(name: object) -> None:
    with tpuserve.emulated_tpu(8):
        found = TPUClusterResolver(name, zone="z", project="p")
    assert (found.master(), found.get_master(), found.cluster_spec().as_dict()) == ("", "", {})


def test_without_one_a_name_is_looked_for() -> None:
    assert TPUClusterResolver("grpc://10.0.0.2:8470").master() == "grpc://10.0.0.2:8470"
    with pytest.raises(TpuNotFound, match="tpu='demo-tpu'"):
        TPUClusterResolver("demo-tpu", zone="z", project="p").cluster_spec()
