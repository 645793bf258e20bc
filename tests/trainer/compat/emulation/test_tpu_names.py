import pytest
from tensorflow.python.distribute.cluster_resolver.tpu import tpu_cluster_resolver

import tpuserve
from tpuserve.errors import TpuNotFound
from trainer.compat.contrib.cluster_resolver import TPUClusterResolver
from trainer.compat.emulation import tpu_names


@pytest.fixture(autouse=True)
def patched_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = tpu_cluster_resolver.TPUClusterResolver
    # monkeypatch restores the patched constructor at the end of the test.
    monkeypatch.setattr(resolver, "__init__", resolver.__init__)
    tpu_names.patch_cluster_resolver()


@pytest.mark.parametrize("name", ["demo-tpu", "grpc://10.0.0.2:8470", ["demo-tpu"], "", None])
def test_every_name_resolves_to_the_emulated_tpu(name: object) -> None:
    with tpuserve.emulated_tpu(8):
        resolver = TPUClusterResolver(name, zone="z", project="p")
    assert (resolver.master(), resolver.get_master(), resolver.cluster_spec().as_dict()) == (
        "",
        "",
        {},
    )


def test_name_is_looked_up_if_no_tpu_is_emulated() -> None:
    assert TPUClusterResolver("grpc://10.0.0.2:8470").master() == "grpc://10.0.0.2:8470"
    with pytest.raises(TpuNotFound, match="tpu='demo-tpu'"):
        TPUClusterResolver("demo-tpu", zone="z", project="p").cluster_spec()
