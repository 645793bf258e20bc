"""The parallelism flags and the session config file set the options of all sessions."""

from pathlib import Path
from typing import Any

from tensorflow.core.protobuf import config_pb2

from server.config import session_options
from server.config.settings import Settings


def build_config(**flags: Any) -> Any:
    return config_pb2.ConfigProto.FromString(
        session_options.build_session_config(Settings(Path("/m"), **flags))
    )


def test_nothing_asked_is_nothing_set() -> None:
    assert build_config() == config_pb2.ConfigProto()


def test_one_flag_sets_both_kinds_of_threads() -> None:
    config = build_config(tensorflow_session_parallelism=3)
    assert (config.intra_op_parallelism_threads, config.inter_op_parallelism_threads) == (3, 3)


def test_flags_go_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "session.config"
    path.write_text("intra_op_parallelism_threads: 5 inter_op_parallelism_threads: 6")
    config = build_config(
        tensorflow_session_config_file=str(path), tensorflow_intra_op_parallelism=2
    )
    assert (config.intra_op_parallelism_threads, config.inter_op_parallelism_threads) == (2, 6)


def test_xla_is_turned_on() -> None:
    assert build_config(
        xla_cpu_compilation_enabled=True
    ).graph_options.optimizer_options.cpu_global_jit
