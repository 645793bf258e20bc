from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.saved_model import builder_impl

from tests.trainer.compat.emulation import own_session
from tpuserve.errors import ExportError
from trainer.compat.emulation import exports

v1 = tf.compat.v1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("add_meta_graph", "add_meta_graph_and_variables"):
        # monkeypatch restores the patched method at the end of the test.
        monkeypatch.setattr(
            builder_impl.SavedModelBuilder, name, getattr(builder_impl.SavedModelBuilder, name)
        )
    monkeypatch.setattr(builder_impl.SavedModelBuilder, exports.PATCHED, False, raising=False)
    exports.patch_saved_model_builder()
    with own_session.emulated_tpu_graph(), v1.Session() as session:
        v = v1.get_variable("v", [], initializer=v1.ones_initializer())
        v1.tpu.rewrite(lambda: v + 1.0)
        session.run(v.initializer)
        yield session


def test_lowered_graph_is_not_exported_for_a_tpu(session: Any, tmp_path: Path) -> None:
    builder = v1.saved_model.Builder(str(tmp_path / "model"))
    with pytest.raises(ExportError, match=r"cannot write a metagraph tagged {serve, tpu}"):
        builder.add_meta_graph_and_variables(session, ["serve", "tpu"])
    assert not [*(tmp_path / "model").iterdir()]


def test_second_metagraph_is_checked_as_well(session: Any, tmp_path: Path) -> None:
    builder = v1.saved_model.Builder(str(tmp_path / "model"))
    builder.add_meta_graph_and_variables(session, ["serve"])
    with pytest.raises(ExportError, match=r"cannot write a metagraph tagged {serve, tpu}"):
        builder.add_meta_graph(["serve", "tpu"])
    assert Path(builder.save().decode()).exists()
