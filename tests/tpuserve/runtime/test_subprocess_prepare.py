"""Another process prepares what this one would, or says what is wrong with it."""

import dataclasses
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.core.framework.graph_pb2 import GraphDef

from tests import models
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import MetagraphNotFound, ModelLoadError
from tpuserve.runtime import loader, subprocess_prepare
from tpuserve.runtime.load_plan import LoadPlan, LoadRequest, make_load_plan

pytestmark = pytest.mark.slow

EMULATED = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> LoadRequest:
    base = tmp_path_factory.mktemp("half")
    directory = models.export(models.half_plus_two, base, tags.SERVE)
    return LoadRequest(directory, None, TpuSystem())


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess_prepare, "_SMALL_BYTES", -1)


def graphs(found: LoadPlan) -> list[GraphDef]:
    """Its pieces; the same message can be written in several ways."""
    return [GraphDef.FromString(each.content) for each in found.pieces]


def test_what_another_process_prepares_is_loaded(asked: LoadRequest) -> None:
    found = subprocess_prepare.make_load_plan_in_subprocess(asked)
    assert dataclasses.replace(found, pieces=()) == dataclasses.replace(
        make_load_plan(asked), pieces=()
    )
    model = loader.load(asked.directory, make_plan=subprocess_prepare.make_load_plan_in_subprocess)
    assert model.run("serving_default", {"x": np.array([[2]], np.float32)})["y"] == 3
    model.close()


def test_graph_for_a_tpu_is_lowered_there_as_it_is_here(tmp_path: Path) -> None:
    asked = LoadRequest(models.export(models.half_plus_two, tmp_path), None, EMULATED)
    apart = subprocess_prepare._ask(asked)
    assert isinstance(apart, LoadPlan)
    assert apart.choice.lowered
    assert graphs(apart) == graphs(make_load_plan(asked))
    model = loader.load(
        asked.directory, hardware=EMULATED, make_plan=lambda _: apart, initialise_tpu=False
    )
    assert model.run("serving_default", {"x": np.array([[2]], np.float32)})["y"] == 3
    model.close()


def test_refusal_comes_back_as_it_is(asked: LoadRequest) -> None:
    with pytest.raises(MetagraphNotFound, match="found {serve}"):
        subprocess_prepare.make_load_plan_in_subprocess(
            dataclasses.replace(asked, wanted_tags=tags.SERVE_TPU)
        )


def test_without_another_process_it_is_done_here(
    asked: LoadRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", ("false",))
    assert subprocess_prepare.make_load_plan_in_subprocess(asked).choice.tags == tags.SERVE
    assert "prepared in this process" in caplog.text


def test_what_no_such_process_would_send_is_passed_over(
    asked: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", ("printf", r"cno.such.module\nname\n."))
    assert subprocess_prepare.make_load_plan_in_subprocess(asked).choice.tags == tags.SERVE


def test_model_for_which_it_was_killed_is_not_tried_here(
    asked: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", killed)
    monkeypatch.setattr(
        subprocess_prepare, "prepare", lambda asked: pytest.fail("it is tried here")
    )
    with pytest.raises(ModelLoadError, match="where memory is short"):
        subprocess_prepare.make_load_plan_in_subprocess(asked)


def test_one_that_was_killed_before_it_was_asked_is_told_from_one_that_failed(
    asked: LoadRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deaf = tmp_path / "deaf"
    program = f"import os; os.close(0); open('{deaf}', 'w'); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", (sys.executable, "-c", program))
    monkeypatch.setattr(
        subprocess_prepare, "prepare", lambda asked: pytest.fail("it is tried here")
    )

    class Late:
        def __reduce__(self) -> Any:
            while not deaf.exists():
                time.sleep(0.01)
            return frozenset, ()

    late: Any = Late()
    with pytest.raises(ModelLoadError, match="where memory is short"):
        subprocess_prepare.make_load_plan_in_subprocess(
            dataclasses.replace(asked, wanted_tags=late)
        )


def test_small_model_needs_no_process(asked: LoadRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(subprocess_prepare, "_ask", lambda asked: pytest.fail("there is one"))
    assert subprocess_prepare.make_load_plan_in_subprocess(asked).choice.tags == tags.SERVE


def test_what_is_printed_meanwhile_is_no_answer(
    asked: LoadRequest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    talks = "from tpuserve import prepare_apart as p; g = p.prepare; "
    talks += "p.prepare = lambda asked: (print('a word', flush=True), g(asked))[1]; p.main()"
    program = f"import sys; sys.path[:] = sys.argv[1:]; {talks}"
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", (sys.executable, "-I", "-c", program))
    monkeypatch.setattr(subprocess_prepare, "prepare", lambda asked: pytest.fail("it is done here"))
    assert subprocess_prepare.make_load_plan_in_subprocess(asked).choice.tags == tags.SERVE
    assert "a word" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="it is of Linux's scheduler")
def test_it_goes_last_in_whatever_way_processes_are_scheduled() -> None:
    program = subprocess_prepare._GO_LAST + (
        "from tpuserve import prepare_apart as p; p._die_first(); print(os.nice(0)); "
        "print(open(p._OOM_FILE).read()); "
        "print(open(p._SESSION_NICE_FILE).read() if os.path.exists(p._SESSION_NICE_FILE) else '')"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, stdout=-1, check=True, start_new_session=True, text=True)
    nice, score, *session = ran.stdout.split()
    assert (nice, score) == ("15", "1000")
    if Path(subprocess_prepare._SESSION_NICE_FILE).exists():
        assert session[-2:] == ["nice", "15"]


@pytest.mark.skipif(
    not Path(subprocess_prepare._SESSION_NICE_FILE).exists(),
    reason="sessions are not scheduled as one",
)
def test_many_without_privileges_go_last_at_the_same_time() -> None:
    shown = f"print(open({subprocess_prepare._SESSION_NICE_FILE!r}).read())"
    command = [*_without_privileges(), sys.executable, "-c", subprocess_prepare._GO_LAST + shown]
    together = [
        subprocess.Popen(command, stdout=-1, stderr=-1, start_new_session=True, text=True)
        for _ in range(5)
    ]
    for out, err in [each.communicate() for each in together]:
        assert out.split()[-2:] == ["nice", "15"]
        assert err == ""


def _without_privileges() -> list[str]:
    """What runs a command as one that the kernel lets say little; nothing where it cannot."""
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    can = (
        shutil.which(command[0])
        and not subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode
    )
    return command if can else []


def test_other_process_ends_with_the_one_that_asked_it(asked: LoadRequest) -> None:
    endless = "from threading import Event; from tpuserve import prepare_apart as p; "
    endless += "p.prepare = lambda asked: Event().wait(); p.main()"
    program = f"import sys; sys.path[:] = sys.argv[1:]; {endless}"
    command = [sys.executable, "-I", "-c", program, *sys.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdin is not None
            pickle.dump((asked, b""), process.stdin)
            process.stdin.close()
            assert process.wait(60) == 1
        finally:
            process.kill()
