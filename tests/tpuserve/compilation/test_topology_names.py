import io

import pytest
from rich.console import Console

from tpuserve.compilation import topology_table
from tpuserve.compilation.topology_names import find_topology, list_topologies
from tpuserve.errors import InvalidSetting


@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("v5e", "v5e:1x1"),
        ("V6E", "v6e:1x1"),
        ("v5p", "v5p:2x2x1"),
        ("v5litepod-1", "v5e:1x1"),
        ("v5litepod-8", "v5e:2x4"),
        ("v6e-1", "v6e:1x1"),
        # The number in "v4-8" counts cores, of which a chip has two.
        ("v4-8", "v4:2x2x1"),
        ("v5e:2x2_untwisted", "v5e:2x2_untwisted"),
        ("v5litepod-3", None),
        ("models", None),
    ],
)
def test_short_names_and_those_of_cloud_tpu_are_known(name: str, topology: str | None) -> None:
    assert find_topology(name) == topology


def test_plain_v5_is_refused_with_what_is_meant() -> None:
    with pytest.raises(InvalidSetting, match="v5e or v5p is meant. Give v5e:1x1 or v5p:2x2x1;"):
        find_topology("v5")


def test_names_of_the_list_are_found_again() -> None:
    listed = list_topologies()
    assert len({topology.name for topology in listed}) == len(listed) > 20
    for topology in listed:
        assert not topology.cloud_name or find_topology(topology.cloud_name) == topology.name


def test_table_has_chips_memory_and_peak_of_a_topology() -> None:
    console = Console(file=io.StringIO(), width=80)
    topology_table.print_topologies(console)
    assert isinstance(console.file, io.StringIO)
    rows = [line.split() for line in console.file.getvalue().splitlines()]
    # v5e:2x2 has 4 chips, each with 16 GB and 197 TFLOP/s.
    assert ["v5e:2x2", "v5litepod-4", "4", "16", "64", "788"] in rows
