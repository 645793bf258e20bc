"""Execution backends: a program can register another backend, which then runs every mode."""

import collections
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting
from trainer.backends import registry
from trainer.backends.base import EvalGraph, ExecutionBackend, PredictGraph, TrainGraph

NAME = "counting"


class CountingBackend:
    """Wraps another backend, and counts the calls of its methods."""

    calls: collections.Counter[str] = collections.Counter()

    def __init__(self, inner: ExecutionBackend) -> None:
        self._inner = inner

    def new_graph(self, config: Any) -> AbstractContextManager[Any]:
        self.calls["new_graph"] += 1
        return self._inner.new_graph(config)

    def build_train_graph(self, *arguments: Any) -> TrainGraph:
        self.calls["build_train_graph"] += 1
        return self._inner.build_train_graph(*arguments)

    def build_eval_graph(self, *arguments: Any) -> EvalGraph:
        self.calls["build_eval_graph"] += 1
        return self._inner.build_eval_graph(*arguments)

    def build_predict_graph(self, *arguments: Any) -> PredictGraph:
        self.calls["build_predict_graph"] += 1
        return self._inner.build_predict_graph(*arguments)

    def create_session(self, config: Any, scaffold: Any, hooks: Any, **options: Any) -> Any:
        self.calls["create_session"] += 1
        return self._inner.create_session(config, scaffold, hooks, **options)

    def run_scope(self) -> AbstractContextManager[Any]:
        self.calls["run_scope"] += 1
        return self._inner.run_scope()


def create_counting_backend(program: Any, mode: str) -> ExecutionBackend:
    return CountingBackend(registry.create_backend(registry.LOCAL, program, mode))


@pytest.fixture
def _counting_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    CountingBackend.calls.clear()
    registry.register_backend(NAME, create_counting_backend)


class CountedEstimator(trainer.TPUEstimator):
    """An estimator that runs every mode on a CountingBackend."""

    def _select_backend(self, mode: str) -> ExecutionBackend:
        return registry.create_backend(NAME, self._program, mode)


@pytest.mark.usefixtures("_counting_backend")
def test_every_mode_runs_through_a_third_backend(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path)
    estimator.__class__ = CountedEstimator
    estimator.train(programs.ones(), max_steps=5)
    assert programs.variable(tmp_path, "w") == 1 - 0.5**5
    assert estimator.evaluate(programs.ones(2))["global_step"] == 5
    (prediction, *_) = estimator.predict(programs.ones(1))
    assert prediction["y"] == [1 - 0.5**5]
    assert dict(CountingBackend.calls) == {
        "new_graph": 3,
        "build_train_graph": 1,
        "build_eval_graph": 1,
        "build_predict_graph": 1,
        "create_session": 3,
        "run_scope": 3,
    }


@pytest.mark.usefixtures("_counting_backend")
def test_a_name_is_registered_only_once() -> None:
    with pytest.raises(InvalidSetting, match="'counting' is registered already"):
        registry.register_backend(NAME, create_counting_backend)


def test_an_unknown_backend_is_refused_with_the_known_names(tmp_path: Path) -> None:
    program = programs.estimator(tmp_path)._program
    with pytest.raises(InvalidSetting, match="no execution backend named 'cpu'. Use one of local"):
        registry.create_backend("cpu", program, "train")
