from pathlib import Path

import pytest

from tpuserve.saved_model.summary import convert_command


@pytest.mark.parametrize(
    ("directory", "tags", "command"),
    [
        ("/m/half/1", ["serve"], "tpuserve convert /m/half/1 /m/half-tpu/1"),
        ("/m/half", ["serve"], "tpuserve convert /m/half /m/half-tpu"),
        ("a b", ["serve"], "tpuserve convert 'a b' 'a b-tpu'"),
        ("half", ["transform"], "tpuserve convert half half-tpu --tags transform"),
        ("1", ["serve"], "tpuserve convert 1 1-tpu"),
    ],
)
def test_command_keeps_the_version_and_names_other_tags(
    directory: str, tags: list[str], command: str
) -> None:
    assert convert_command(Path(directory), [frozenset(tags)]) == command
