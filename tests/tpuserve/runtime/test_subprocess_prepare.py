"""A subprocess makes the same plan as this process, or reports the same error."""

import dataclasses
import os
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
from tpuserve.errors import Code, CodedError, MetagraphNotFound
from tpuserve.runtime import loader, subprocess_prepare
from tpuserve.runtime.load_plan import LoadPlan, LoadRequest, make_load_plan
from tpuserve.runtime.subprocess_prepare import make_load_plan_in_subprocess

EMULATED = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)


@pytest.fixture(scope="module")
def load_request(tmp_path_factory: pytest.TempPathFactory) -> LoadRequest:
    base = tmp_path_factory.mktemp("half")
    directory = models.export(models.half_plus_two, base, tags.SERVE)
    return LoadRequest(directory, None, TpuSystem())


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess_prepare, "_SMALL_BYTES", -1)


def graphs(plan: LoadPlan) -> list[GraphDef]:
    """Return the parsed segments of a plan: the bytes of equal messages may differ."""
    return [GraphDef.FromString(segment.content) for segment in plan.runtime_plan.segments]


def without_segments(plan: LoadPlan) -> LoadPlan:
    return dataclasses.replace(
        plan, runtime_plan=dataclasses.replace(plan.runtime_plan, segments=())
    )


@pytest.mark.slow
def test_plan_of_a_subprocess_is_loaded(load_request: LoadRequest) -> None:
    plan = make_load_plan_in_subprocess(load_request)
    assert without_segments(plan) == without_segments(make_load_plan(load_request))
    assert graphs(plan) == graphs(make_load_plan(load_request))
    model = loader.load(load_request.directory, make_plan=make_load_plan_in_subprocess)
    assert model.run("serving_default", {"x": np.array([[2]], np.float32)})["y"] == 3
    model.close()


def test_subprocess_lowers_a_tpu_graph_as_this_process_does(tmp_path: Path) -> None:
    load_request = LoadRequest(models.export(models.half_plus_two, tmp_path), None, EMULATED)
    plan = subprocess_prepare._run_subprocess(load_request)
    assert isinstance(plan, LoadPlan)
    assert plan.choice.lowered
    assert graphs(plan) == graphs(make_load_plan(load_request))
    model = loader.load(
        load_request.directory, hardware=EMULATED, make_plan=lambda _: plan, initialise_tpu=False
    )
    assert model.run("serving_default", {"x": np.array([[2]], np.float32)})["y"] == 3
    model.close()


def test_error_of_the_subprocess_is_raised_unchanged(load_request: LoadRequest) -> None:
    with pytest.raises(MetagraphNotFound, match="found {serve}"):
        make_load_plan_in_subprocess(dataclasses.replace(load_request, wanted_tags=tags.SERVE_TPU))


def test_failed_subprocess_is_replaced_by_this_process(
    load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", ("false",))
    assert make_load_plan_in_subprocess(load_request).choice.tags == tags.SERVE
    assert "prepared in this process" in caplog.text


def test_unexpected_output_of_the_subprocess_is_ignored(
    load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", ("printf", r"cno.such.module\nname\n."))
    assert make_load_plan_in_subprocess(load_request).choice.tags == tags.SERVE


def test_model_whose_subprocess_was_killed_is_not_planned_in_this_process(
    load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", killed)
    monkeypatch.setattr(subprocess_prepare, "make_load_plan", lambda _: pytest.fail("planned here"))
    with pytest.raises(
        CodedError, match="where memory is short", check=lambda error: error.code is Code.INTERNAL
    ):
        make_load_plan_in_subprocess(load_request)


def test_subprocess_killed_before_it_reads_the_load_requestis_reported_as_killed(
    load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deaf = tmp_path / "deaf"
    program = f"import os; os.close(0); open('{deaf}', 'w'); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", (sys.executable, "-c", program))
    monkeypatch.setattr(subprocess_prepare, "make_load_plan", lambda _: pytest.fail("planned here"))

    class Late:
        def __reduce__(self) -> Any:
            while not deaf.exists():
                time.sleep(0.01)
            return frozenset, ()

    late: Any = Late()
    with pytest.raises(
        CodedError, match="where memory is short", check=lambda error: error.code is Code.INTERNAL
    ):
        make_load_plan_in_subprocess(dataclasses.replace(load_request, wanted_tags=late))


def test_small_model_needs_no_subprocess(
    load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(subprocess_prepare, "_run_subprocess", lambda _: pytest.fail("started one"))
    assert make_load_plan_in_subprocess(load_request).choice.tags == tags.SERVE


def test_printed_text_does_not_get_into_the_plan(
    load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    talks = "from tpuserve.runtime import subprocess_prepare as p; g = p.make_load_plan; "
    talks += "p.make_load_plan = lambda r: (print('a word', flush=True), g(r))[1]; p.main()"
    program = f"import sys; sys.path[:] = sys.argv[1:]; {talks}"
    monkeypatch.setattr(subprocess_prepare, "_COMMAND", (sys.executable, "-I", "-c", program))
    monkeypatch.setattr(subprocess_prepare, "make_load_plan", lambda _: pytest.fail("planned here"))
    assert make_load_plan_in_subprocess(load_request).choice.tags == tags.SERVE
    assert "a word" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="the scheduler of Linux")
def test_subprocess_has_the_lowest_priority_with_and_without_autogroups() -> None:
    program = subprocess_prepare._LOWER_PRIORITY + (
        "from tpuserve.runtime import subprocess_prepare as p; p._raise_oom_score(); "
        "print(os.nice(0)); "
        "print(open(p._OOM_FILE).read()); "
        "print(open(p._SESSION_NICE_FILE).read() if os.path.exists(p._SESSION_NICE_FILE) else '')"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, stdout=-1, check=True, start_new_session=True, text=True)
    nice, score, *session = ran.stdout.split()
    assert (nice, score) == (str(min(os.nice(0) + 15, 19)), "1000")
    if Path(subprocess_prepare._SESSION_NICE_FILE).exists():
        assert session[-2:] == ["nice", "15"]


@pytest.mark.skipif(
    not Path(subprocess_prepare._SESSION_NICE_FILE).exists(),
    reason="the kernel has no autogroups",
)
def test_several_unprivileged_subprocesses_lower_their_priority_at_once() -> None:
    statement = f"print(open({subprocess_prepare._SESSION_NICE_FILE!r}).read())"
    command = [
        *_without_privileges(),
        sys.executable,
        "-c",
        subprocess_prepare._LOWER_PRIORITY + statement,
    ]
    processes = [
        subprocess.Popen(command, stdout=-1, stderr=-1, start_new_session=True, text=True)
        for _ in range(5)
    ]
    for out, err in [process.communicate() for process in processes]:
        assert out.split()[-2:] == ["nice", "15"]
        assert err == ""


def _without_privileges() -> list[str]:
    """Return a command prefix that drops all capabilities of Linux; empty if that is impossible."""
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    can = (
        shutil.which(command[0])
        and not subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode
    )
    return command if can else []


def test_subprocess_exits_with_its_parent(load_request: LoadRequest) -> None:
    endless = "from threading import Event; from tpuserve.runtime import subprocess_prepare as p; "
    endless += "p.make_load_plan = lambda request: Event().wait(); p.main()"
    program = f"import sys; sys.path[:] = sys.argv[1:]; {endless}"
    command = [sys.executable, "-I", "-c", program, *sys.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdin is not None
            pickle.dump((load_request, b""), process.stdin)
            process.stdin.close()
            assert process.wait(60) == 1
        finally:
            process.kill()
