"""Programs with canned estimators of TensorFlow 1 run unchanged, alone and in a cluster."""

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import processes
from tests.preloaded.process import PreloadedProcess
from tests.trainer.compat import program_runner

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a file of 200 rows in which people with a Masters degree earn over 50K."""
    random = np.random.default_rng(1)
    education = itertools.cycle(["Bachelors", "HS-grad", "Masters", "Masters"])
    rows = [
        f"{random.integers(18, 70)},{degree},{random.choice(['Sales', 'Tech'])},"
        f"{random.integers(20, 60)},{'>50K' if degree == 'Masters' else '<=50K'}"
        for degree in itertools.islice(education, 200)
    ]
    (tmp_path / "census.csv").write_text("\n".join(rows))
    return tmp_path / "census.csv"


@pytest.mark.parametrize("model_type", ["wide", "deep", "wide_deep"])
def test_a_wide_and_deep_program_trains_evaluates_and_exports(
    model_type: str, data: Path, tmp_path: Path
) -> None:
    output = program_runner.run_program(
        "wide_deep.py",
        *("--data_file", data, "--model_dir", tmp_path / "model", "--model_type", model_type),
        *("--train_steps", 400, "--export_dir", tmp_path / "export"),
    )
    results = dict(re.findall(r"^(\w+): (\S+)$", output, re.MULTILINE))
    assert results["global_step"] == "400"
    assert float(results["accuracy"]) > 0.9
    assert float(results["my_auc"]) > 0.9
    export = program_runner.find_newest_export(tmp_path / "export")
    saved = tf.saved_model.load(str(export))
    assert {"classification", "predict", "regression"} <= set(saved.signatures)


def test_a_canned_estimator_trains_with_a_parameter_server(data: Path, tmp_path: Path) -> None:
    jobs = ("ps", "chief", "worker")
    ports = processes.free_ports(len(jobs))
    cluster = {job: [f"127.0.0.1:{port}"] for job, port in zip(jobs, ports, strict=True)}
    program = str(program_runner.PROGRAMS / "wide_deep.py")
    flags = ["--data_file", str(data), "--model_dir", str(tmp_path / "model")]
    with contextlib.ExitStack() as ending:
        members = {}
        for job in jobs:
            described = {"cluster": cluster, "task": {"type": job, "index": 0}}
            log = ending.enter_context((tmp_path / f"{job}.log").open("w"))
            members[job] = PreloadedProcess(
                [sys.executable, "-m", "tpuserve.run", program, *flags, "--train_steps", "200"],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "TF_CONFIG": json.dumps(described)},
            )
            ending.callback(members[job].communicate)
            ending.callback(members[job].kill)
        for job in ("chief", "worker"):
            assert members[job].wait(600) == 0, (tmp_path / f"{job}.log").read_text()[-4000:]
    trained = tf.train.load_variable(str(tmp_path / "model"), "global_step")
    assert trained >= 200
