"""The computations of a TPU metagraph run on devices of jax's PJRT client."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.preloaded.process import run_preloaded
from tests.threads import no_new_threads
from tests.tpuserve.compilation import exports
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import (
    DeadlineExceeded,
    DeviceMemoryExhausted,
    ExtraNotInstalled,
    InvalidTensor,
    ModelExecutionError,
    Unavailable,
    UnsupportedModel,
    UnsupportedOnTpu,
)
from tpuserve.export import convert, export, on_tpu
from tpuserve.runtime import loader, pjrt_model
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.session.signature_runner import SignatureRunner
from tpuserve.stablehlo.translator import StableHloTranslator

jax = pytest.importorskip("jax")

DEVICE = TpuSystem(tpu_cores=1, hosts=1, pjrt_platform="cpu")
ROWS = np.ones((2, 16), np.float32)


def load_model(directory: Path) -> LoadedModel:
    return loader.load(directory, tags.SERVE_TPU, DEVICE)


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = exports.whole(exports.linear)
    return exports.write_model(tmp_path_factory.mktemp("linear"), model, [None, 16])


@pytest.fixture
def model(linear: Path) -> Iterator[LoadedModel]:
    model = load_model(linear)
    yield model
    model.close()


def test_rows_of_ones_times_a_matrix_of_ones_are_sixteen(model: LoadedModel) -> None:
    assert str(model.choice).startswith("{serve, tpu} on CPU with the pjrt runtime")
    answer = model.run("serving_default", {"x": ROWS})
    np.testing.assert_array_equal(answer["y"], np.full((2, 4), 16, np.float32))


def test_shape_that_the_computation_refuses_is_an_invalid_tensor(model: LoadedModel) -> None:
    with pytest.raises(InvalidTensor):
        model.run("serving_default", {"x": np.ones((2, 15), np.float32)})


def test_input_of_another_type_is_an_invalid_tensor(model: LoadedModel) -> None:
    with pytest.raises(InvalidTensor, match="to be float but int32 is provided"):
        model.run("serving_default", {"x": np.ones((2, 16), np.int32)})


def test_host_ops_around_the_computation_run_in_tensorflow(tmp_path: Path) -> None:
    def between_host_ops(x: tf.Tensor) -> tf.Tensor:
        (y,) = on_tpu(lambda inputs: [exports.linear(inputs)], x + 1)
        return tf.strings.as_string(y, precision=1)

    model = load_model(exports.write_model(tmp_path, between_host_ops, [None, 16]))
    answer = model.run("serving_default", {"x": ROWS[:1]})
    assert answer["y"].tolist() == [[b"32.0"] * 4]
    with pytest.raises(InvalidTensor):
        model.run("serving_default", {"x": np.ones((2, 15), np.float32)})
    model.close()


def double_in_one_computation(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"twice": 2 * x, "x": x + 0}


def double_after_a_check(x: tf.Tensor, use_tpu: bool) -> dict[str, tf.Tensor]:
    tf.debugging.assert_positive(x, "x is not positive")
    return on_tpu(double_in_one_computation, x) if use_tpu else double_in_one_computation(x)


def export_function(directory: Path, function: Any) -> Path:
    return Path(export(function, {"x": tf.TensorSpec([None], tf.float32)}, directory))


def test_function_that_is_one_computation_runs_without_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = export_function(tmp_path, double_in_one_computation)
    monkeypatch.delattr(SignatureRunner, "_make_callable")
    model = load_model(directory)
    answer = model.run("serving_default", {"x": np.array([1, 2], np.float32)})
    assert {name: value.tolist() for name, value in answer.items()} == {
        "twice": [2, 4],
        "x": [1, 2],
    }
    model.close()


def test_check_beside_the_computation_is_not_skipped(tmp_path: Path) -> None:
    model = load_model(export_function(tmp_path, double_after_a_check))
    answer = model.run("serving_default", {"x": np.array([1, 2], np.float32)})
    assert answer["twice"].tolist() == [2, 4]
    with pytest.raises(InvalidTensor, match="x is not positive"):
        model.run("serving_default", {"x": np.array([-1], np.float32)})
    model.close()


def test_request_is_not_answered_after_its_deadline(model: LoadedModel) -> None:
    assert model.run("serving_default", {"x": ROWS}, timeout_ms=60_000)["y"].shape == (2, 4)
    with pytest.raises(DeadlineExceeded):
        model.run("serving_default", {"x": ROWS}, timeout_ms=0)


def test_a_run_with_a_deadline_says_that_no_thread_can_be_started(linear: Path) -> None:
    model = load_model(linear)
    with no_new_threads(), pytest.raises(Unavailable, match="has no thread: can't start new thr"):
        model.run("serving_default", {"x": ROWS}, timeout_ms=60_000)
    assert model.run("serving_default", {"x": ROWS}, timeout_ms=60_000)["y"].shape == (2, 4)
    model.close()


def test_one_row_is_compiled_before_the_model_is_loaded(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated = []
    translate = StableHloTranslator.translate

    def counting_translate(self: StableHloTranslator, cluster: object) -> bytes:
        translated.append(cluster)
        return translate(self, cluster)  # type: ignore[arg-type]

    monkeypatch.setattr(StableHloTranslator, "translate", counting_translate)
    model = load_model(linear)
    assert len(translated) == 1
    model.run("serving_default", {"x": ROWS[:1]})
    assert len(translated) == 1
    model.run("serving_default", {"x": ROWS})
    model.run("serving_default", {"x": ROWS})
    assert len(translated) == 2
    model.close()


def test_closed_model_holds_no_memory_on_the_device_and_refuses_to_run(linear: Path) -> None:
    # The list keeps arrays of earlier tests alive, so that their number stays.
    before = jax.live_arrays()
    model = load_model(linear)
    assert len(jax.live_arrays()) == len(before) + 1
    model.close()
    assert len(jax.live_arrays()) == len(before)
    for timeout_ms in (None, 60_000):
        with pytest.raises(ModelExecutionError, match="closed"):
            model.run("serving_default", {"x": ROWS}, timeout_ms=timeout_ms)


def test_op_that_xla_cannot_compile_fails_the_load_by_its_name(tmp_path: Path) -> None:
    def text(x: tf.Tensor) -> tf.Tensor:
        return tf.strings.to_number(tf.strings.as_string(x))

    with pytest.raises(UnsupportedOnTpu, match="AsString"):
        load_model(exports.write_model(tmp_path, exports.whole(text), [None, 16]))


def test_variable_that_the_device_has_no_memory_for_fails_the_load(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The list keeps arrays of earlier tests alive, so that their number stays.
    before = jax.live_arrays()
    # All elements of the array share the memory of one element, so the test needs no memory.
    value = np.broadcast_to(np.float32(0), [2**46, 4])
    monkeypatch.setattr(pjrt_model, "_make_variable_reader", lambda *_: lambda name: value)
    with pytest.raises(DeviceMemoryExhausted, match="has no memory left: RESOURCE_EXHAUSTED"):
        load_model(linear)
    assert len(jax.live_arrays()) == len(before)


def test_computation_that_assigns_to_a_variable_is_refused(tmp_path: Path) -> None:
    def counting(x: tf.Tensor) -> tf.Tensor:
        return x + exports.variable("count", []).assign_add(1.0)

    with pytest.raises(UnsupportedOnTpu, match="updates a variable"):
        load_model(exports.write_model(tmp_path, exports.whole(counting), [None, 16]))


class Counter(tf.Module):
    """Counts the requests for the signature add."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.w = tf.Variable(0.0), tf.Variable(tf.eye(2))

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def add(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        self.n.assign_add(1.0)
        return {"y": x @ self.w}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def read(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"n": self.n + 0.0 * x}


def test_variable_that_the_host_updates_is_read_on_the_host_or_refused(tmp_path: Path) -> None:
    module = Counter()
    signatures = {"add": module.add, "read": module.read}
    tf.saved_model.save(module, str(tmp_path / "counter"), signatures)
    convert(tmp_path / "counter", tmp_path / "all")
    with pytest.raises(UnsupportedOnTpu, match=r"'add' updates a variable \(.* on the host"):
        load_model(tmp_path / "all")
    convert(tmp_path / "counter", tmp_path / "add", signatures=["add"])
    model = load_model(tmp_path / "add")
    x = np.ones((1, 2), np.float32)
    assert [model.run("add", {"x": x})["y"].tolist() for _ in range(2)] == [[[1, 1]], [[1, 1]]]
    assert model.run("read", {"x": x})["n"].tolist() == [[2, 2]]
    model.close()


def test_metagraph_without_the_tpu_tag_is_refused(linear: Path) -> None:
    words = Path(__file__).parents[2] / "data" / "words"
    with pytest.raises(UnsupportedModel, match="runs TPU metagraphs only"):
        loader.load(words, tags.SERVE, DEVICE, runtime="pjrt")


def test_missing_jax_is_an_error_that_says_what_to_install(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ExtraNotInstalled, match=r"\.\[pjrt\]"):
        load_model(linear)


_TWO_DEVICES = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from tpuserve import tags
from tpuserve.devices import find_tpu_system
from tpuserve.pjrt.device_core import DeviceCore
from tpuserve.runtime import loader

system = find_tpu_system()
model = loader.load(sys.argv[1], tags.SERVE_TPU, system)
both_are_running, used = threading.Barrier(2), set()
get_executable = DeviceCore.get_executable

def recording(core, key):
    both_are_running.wait(60)
    used.add(id(core))
    return get_executable(core, key)

DeviceCore.get_executable = recording
rows = np.ones((1, 16), np.float32)
with ThreadPoolExecutor(2) as pool:
    run = lambda _: model.run("serving_default", {"x": rows})["y"].tolist()
    answers = list(pool.map(run, range(2)))
print(system.tpu_cores, len(used), answers)
"""


@pytest.mark.slow
def test_two_requests_at_once_run_on_two_devices(linear: Path) -> None:
    environment = {
        **os.environ,
        "TPUSERVE_PJRT_PLATFORM": "cpu",
        "TPUSERVE_TPU_RUNTIME": "pjrt",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    result = run_preloaded(["-c", _TWO_DEVICES, str(linear)], env=environment)
    assert result.returncode == 0, result.stderr
    assert (
        result.stdout.splitlines()[-1]
        == "2 2 [[[16.0, 16.0, 16.0, 16.0]], [[16.0, 16.0, 16.0, 16.0]]]"
    )
