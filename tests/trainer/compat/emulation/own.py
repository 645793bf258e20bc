"""A session of a program's own on an emulated TPU, in the process of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
from trainer.compat.emulation import builders

v1 = tf.compat.v1


@contextmanager
def emulated(cores: int = 8, hosts: int = 1) -> Iterator[None]:
    """A graph to build in, with TensorFlow's builders replaced until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, _ in builders.PATCHES:
            # So that it is put back.
            patch.setattr(module, name, getattr(module, name))
        builders.patch_builders()
        with (
            tpuserve.emulated_tpu(cores, hosts),
            tf.Graph().as_default(),
            v1.variable_scope("", use_resource=True),
        ):
            yield


def run(*fetches: Any, feed: Any = None) -> Any:
    """What a new session says of these, once variables have their first values."""
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(list(fetches), feed)
