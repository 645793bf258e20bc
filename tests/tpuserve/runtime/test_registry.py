"""A runtime is one module and one entry in the registry; `load` uses the selected one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tpuserve import saved_models
from tpuserve import loader, tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import InvalidSetting
from tpuserve.runtime import registry
from tpuserve.runtime.load_plan import LoadPlan
from tpuserve.runtime.loaded_model import Array, CancellationToken, LoadedModel
from tpuserve.runtime.registry import LoadOptions
from tpuserve.runtime.session.session_runtime import SessionRuntime
from tpuserve.saved_model.signature import Signature
from tpuserve.select import MetaGraphSelection


class FakeModel:
    """Answers every signature with 42."""

    def __init__(self, plan: LoadPlan) -> None:
        self.choice = plan.choice
        self.signatures = plan.signatures
        self.signature_defs: Mapping[str, Any] = plan.signature_defs

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: CancellationToken | None = None,
    ) -> dict[str, Array]:
        return {alias: np.array(42) for alias in self.signatures[signature_name].outputs}

    def run_multi(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
        cancellation: CancellationToken | None = None,
    ) -> dict[str, dict[str, Array]]:
        return {name: self.run(name, inputs, aliases) for name, aliases in output_names.items()}

    def close(self) -> None:
        pass


class FakeRuntime:
    """Plans the number of nodes, and loads a `FakeModel`."""

    def make_plan(
        self,
        meta_graph: Any,
        directory: Path,
        choice: MetaGraphSelection,
        signatures: Mapping[str, Signature],
    ) -> int:
        return len(meta_graph.graph_def.node)

    def load(self, directory: Path, plan: LoadPlan, options: LoadOptions) -> LoadedModel:
        assert isinstance(plan.runtime_plan, int)
        return FakeModel(plan)


@pytest.fixture
def fake_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.RUNTIMES, "fake", f"{__name__}:FakeRuntime")


def test_load_uses_the_registered_runtime_that_is_selected(
    fake_runtime: None, tmp_path: Path
) -> None:
    directory = saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / "half")
    model = loader.load(directory, tags.SERVE, TpuSystem(), runtime="fake")
    assert isinstance(model, FakeModel)
    assert isinstance(model, LoadedModel)
    assert str(model.choice) == (
        "{serve} on CPU with the fake runtime, asked for (asked for; no TPU found)"
    )
    assert model.run("serving_default", {})["y"] == 42


def test_default_runtime_is_the_session(fake_runtime: None) -> None:
    assert isinstance(registry.get_runtime("session"), SessionRuntime)


def test_unknown_runtime_is_refused_with_the_names_of_the_registered_ones(
    fake_runtime: None,
) -> None:
    with pytest.raises(InvalidSetting) as error:
        registry.get_runtime("abacus")
    assert str(error.value) == (
        "no model runtime is named 'abacus'. Use one of: fake, pjrt, session, xla."
    )
