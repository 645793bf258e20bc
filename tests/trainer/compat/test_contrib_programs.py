"""A program that uses many parts of tf.contrib runs on each device."""

import os
from pathlib import Path

import pytest

from tests.preloaded.process import run_preloaded
from tests.trainer.compat import program_runner

pytestmark = [pytest.mark.slow, pytest.mark.first]

PJRT = {
    "TPUSERVE_TPU_RUNTIME": "pjrt",
    "TPUSERVE_PJRT_PLATFORM": "cpu",
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "2",
}


@pytest.mark.parametrize(
    ("options", "flags", "environment"),
    [([], [], {}), (["--emulate-tpu", "2"], ["tpu"], {}), ([], ["tpu"], PJRT)],
    ids=["cpu", "emulated", "pjrt"],
)
def test_a_tagger_learns_on_every_device(
    options: list[str], flags: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    program = str(program_runner.PROGRAMS / "tagger_like.py")
    process = run_preloaded(
        ["-m", "tpuserve.run", *options, program, str(tmp_path), *flags],
        env={**os.environ, **environment},
    )
    assert process.returncode == 0, process.stderr[-8000:]
    assert process.stdout == "{'accuracy': 1.0, 'global_step': 40}\n"
