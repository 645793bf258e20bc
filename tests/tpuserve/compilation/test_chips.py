import pytest

from tpuserve.compilation import chips


def test_by_default_one_topology_of_each_of_seven_generations_is_compiled_for() -> None:
    assert (
        tuple(["v2:2x2", "v3:2x2", "v4:2x2x1", "v5e:1x1", "v5p:2x2x1", "v6e:1x1", "tpu7x:2x2x1"])
        == chips.DEFAULT_TOPOLOGIES
    )


def test_the_smallest_chip_is_that_of_least_memory_then_of_least_compute() -> None:
    assert chips.sort_by_size(["v6e:1x1", "v4:2x2x1", "v5e:1x1", "v9:1x1", "v2:2x2"]) == [
        "v2:2x2",
        "v5e:1x1",
        "v4:2x2x1",
        "v6e:1x1",
    ]


def test_of_one_generation_the_fewest_chips_are_the_smallest() -> None:
    assert chips.sort_by_size(["v5e:2x2", "v5e:1x1", "v5e:4x4"]) == [
        "v5e:1x1",
        "v5e:2x2",
        "v5e:4x4",
    ]


@pytest.mark.parametrize(("name", "hbm_gb"), [("v5e:2x2", 16), ("tpu7x:2x2x1", 192)])
def test_a_topology_is_of_the_generation_it_names(name: str, hbm_gb: int) -> None:
    chip = chips.find_generation(name)
    assert chip is not None
    assert chip.hbm_bytes == hbm_gb * 10**9
