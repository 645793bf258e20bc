from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from tpuserve.errors import TpuNotFound
from trainer.compat.contrib.cluster_resolver import TPUClusterResolver, replace_tensorflow_resolver


@pytest.fixture(autouse=True)
def _no_variable_names_a_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("tpu", [None, "", "local", [""], b"local"])
def test_no_name_is_this_machine(tpu: Any) -> None:
    resolver = TPUClusterResolver(tpu, zone=None, project=None)
    assert (resolver.master(), resolver.get_master(), resolver.cluster_spec().as_dict()) == (
        "",
        "",
        {},
    )
    assert isinstance(resolver, tf.distribute.cluster_resolver.TPUClusterResolver)


@pytest.mark.parametrize(
    ("variables", "master"),
    [
        ({"TPU_NAME": "local"}, ""),
        ({"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "", "TPU_NAME": "grpc://10.0.0.2:8470"}, "10.0.0.2"),
        (
            {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://10.0.0.3:8470", "TPU_NAME": "local"},
            "10.0.0.3",
        ),
        ({"TPU_NAME": "", "TPU_CONFIG": '{"tpu_node_name": "grpc://10.0.0.4:8470"}'}, "10.0.0.4"),
        ({"TPU_CONFIG": '{"tpu_node_name": "local"}'}, ""),
    ],
)
def test_variables_name_the_tpu_of_a_program_that_names_none(
    variables: dict[str, str], master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert TPUClusterResolver().master() == (f"grpc://{master}:8470" if master else "")


def test_error_for_a_variable_that_is_no_json_gives_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TPU_CONFIG", "tpu_node_name")
    with pytest.raises(TpuNotFound, match="JSONDecodeError.*give 'local'"):
        TPUClusterResolver()


def test_this_machine_needs_no_coordinator() -> None:
    resolver = TPUClusterResolver("local", coordinator_name="coordinator")
    assert (resolver.master(), resolver.cluster_spec().as_dict()) == ("", {})


@pytest.mark.parametrize("use_tpu", [False, True])
def test_a_program_that_names_no_tpu_trains(use_tpu: bool, tmp_path: Path) -> None:
    config = trainer.RunConfig(
        trainer.TPUConfig(2), cluster=TPUClusterResolver(""), model_dir=str(tmp_path)
    )
    with tpuserve.emulated_tpu(2, compiled=False):
        estimator = trainer.TPUEstimator(
            programs.slope_model_fn,
            config=config,
            params={"rate": 0.5},
            train_batch_size=2,
            use_tpu=use_tpu,
        )
        estimator.train(
            lambda params: programs.ones(batch_size=params["batch_size"])(), max_steps=2
        )
    assert programs.variable(tmp_path, "w") == 0.75


def test_an_address_is_used_without_a_lookup() -> None:
    resolver = TPUClusterResolver("grpc://10.0.0.2:8470")
    assert resolver.master() == "grpc://10.0.0.2:8470"
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.2:8470"]}


def test_the_error_for_an_unknown_name_gives_advice() -> None:
    resolver = TPUClusterResolver("my-tpu", zone="z", project="p")
    with pytest.raises(TpuNotFound, match=r"tpu='my-tpu'.*grpc://ADDRESS:8470.*emulate-tpu"):
        trainer.RunConfig(cluster=resolver)


def test_our_resolver_replaces_tensorflows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tf.distribute.cluster_resolver, tf.compat.v1.distribute.cluster_resolver):
        # monkeypatch restores the class after the test.
        monkeypatch.setattr(module, "TPUClusterResolver", module.TPUClusterResolver)
    replace_tensorflow_resolver()
    assert tf.distribute.cluster_resolver.TPUClusterResolver(tpu="").master() == ""
    assert tf.compat.v1.distribute.cluster_resolver.TPUClusterResolver is TPUClusterResolver
