"""Runs TPU computations in plain sessions on an emulated TPU, in the process of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
from trainer.compat.emulation import builders

v1 = tf.compat.v1


@contextmanager
def emulated_tpu_graph(cores: int = 8, hosts: int = 1) -> Iterator[None]:
    """Enter a new graph, with TensorFlow's builders patched until the block ends."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module, name, _ in builders.PATCHES:
            # MonkeyPatch restores the patched function at the end of the block.
            monkeypatch.setattr(module, name, getattr(module, name))
        builders.patch_builders()
        with (
            tpuserve.emulated_tpu(cores, hosts),
            tf.Graph().as_default(),
            v1.variable_scope("", use_resource=True),
        ):
            yield


def run_fetches(*fetches: Any, feed: Any = None) -> Any:
    """Evaluate the fetches in a new session, after the variables are initialized."""
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(list(fetches), feed)
