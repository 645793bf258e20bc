"""A platform config file may contain messages that TensorFlow defines, such as ConfigProto."""

from pathlib import Path

import pytest
from tensorflow.core.protobuf import config_pb2

from server.config import platform_config, session_options
from server.config.settings import Settings
from tests.server.config.test_platform_config import ADAPTER, make_config, read_config
from tpuserve.errors import InvalidConfig


def test_session_options_start_with_the_files(tmp_path: Path) -> None:
    threads = "intra_op_parallelism_threads: 5 inter_op_parallelism_threads: 6"
    file_config = read_config(tmp_path, make_config(f"session_config {{ {threads} }}"))
    settings = Settings(
        Path("/m"), tensorflow_intra_op_parallelism=2, xla_cpu_compilation_enabled=True
    )
    session_config = session_options.build_session_config(
        file_config.apply_to(settings), file_config.session_config
    )
    config = config_pb2.ConfigProto.FromString(session_config)
    assert (config.intra_op_parallelism_threads, config.inter_op_parallelism_threads) == (5, 6)
    assert config.graph_options.optimizer_options.cpu_global_jit


def test_unknown_session_option_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidConfig, match=r"config': line 5, column 2, .*ConfigProto\" has no field named"
    ):
        read_config(tmp_path, make_config("session_config {\n intra_op_threads: 1 }"))


def test_inputs_that_the_model_would_miss_are_refused(tmp_path: Path) -> None:
    fixed = "experimental_fixed_input_tensors { name: 'x:0' }"
    with pytest.raises(InvalidConfig, match="experimental_fixed_input_tensors are set, and this"):
        read_config(tmp_path, make_config(fixed))


def test_binary_form_is_read_too(tmp_path: Path) -> None:
    # Field 1000, legacy_config, has 7 bytes: field 6, saved_model_tags, with a string of 5 bytes.
    value = r"\302>\0072\005serve"
    kind = "tensorflow.serving.SavedModelBundleSourceAdapterConfig"
    path = tmp_path / "platform.config"
    path.write_text(
        'platform_configs { key: "tensorflow" value { source_adapter_config { '
        f'type_url: "type.googleapis.com/{kind}" value: "{value}" }} }} }}'
    )
    assert platform_config.read_platform_config(path).flags["saved_model_tags"] == {"serve"}
    path.write_text(path.read_text().replace("serve", "ser"))
    with pytest.raises(InvalidConfig, match="not a tensorflow.serving.Saved"):
        platform_config.read_platform_config(path)


def test_fields_in_binary_have_tensorflow_servings_numbers(tmp_path: Path) -> None:
    # Field 1000 has 6 bytes, in which field 786 has the value 2 and field 787 the value 3. Each
    # field begins with a varint: field number * 8 + wire type.
    value = r"\302\076\006\220\061\002\230\061\003"
    adapter = f'source_adapter_config {{ type_url: "{ADAPTER}" value: "{value}" }}'
    flags = read_config(
        tmp_path, f'platform_configs {{ key: "tensorflow" value {{ {adapter} }} }}'
    ).flags
    assert (flags["num_tflite_interpreters_per_pool"], flags["num_tflite_pools"]) == (2, 3)
