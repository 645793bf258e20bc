"""Another process prepares what this one would, or says what is wrong with it."""

import dataclasses

import numpy as np
import pytest

from tests import models
from tpuserve import loader, prepare_apart, tags
from tpuserve.devices import Hardware
from tpuserve.errors import MetagraphNotFound
from tpuserve.prepared import Request, prepare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Request:
    base = tmp_path_factory.mktemp("half")
    directory = models.export(models.half_plus_two, base, tags.SERVE)
    return Request(directory, None, Hardware())


def test_what_another_process_prepares_is_loaded(asked: Request) -> None:
    found = prepare_apart.prepare_apart(asked)
    assert dataclasses.replace(found, pieces=()) == dataclasses.replace(prepare(asked), pieces=())
    model = loader.load(asked.directory, prepare=prepare_apart.prepare_apart)
    assert model.run("serving_default", {"x": np.array([[2]], np.float32)})["y"] == 3
    model.close()


def test_refusal_comes_back_as_it_is(asked: Request) -> None:
    with pytest.raises(MetagraphNotFound, match="found {serve}"):
        prepare_apart.prepare_apart(dataclasses.replace(asked, wanted_tags=tags.SERVE_TPU))


def test_without_another_process_it_is_done_here(
    asked: Request, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prepare_apart, "_COMMAND", ("false",))
    assert prepare_apart.prepare_apart(asked).choice.tags == tags.SERVE
    assert "prepared in this process" in caplog.text
