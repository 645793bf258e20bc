"""Blocks of shared memory never overlap, and freed memory can be used again."""

import mmap

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.remote.arena import Arena, map_memory

PAGE = mmap.PAGESIZE
PAGES = 16


def test_other_end_reads_what_was_written() -> None:
    arena = Arena(PAGES * PAGE)
    memory = map_memory(arena.descriptor)
    offset = arena.allocate(5)
    assert offset is not None
    arena.memory[offset : offset + 5] = b"hello"
    assert memory[offset : offset + 5] == b"hello"


def test_full_arena_has_no_block_until_one_is_freed() -> None:
    arena = Arena(PAGES * PAGE)
    offset = arena.allocate(PAGES * PAGE)
    assert offset == 0
    assert arena.allocate(1) is None
    arena.free(offset)
    assert arena.allocate(1) == 0


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(1, 5 * PAGE), st.integers(0, 9)), max_size=40))
def test_blocks_do_not_overlap_and_all_memory_returns(
    steps: list[tuple[int, int]],
) -> None:
    arena = Arena(PAGES * PAGE)
    blocks: dict[int, int] = {}
    for size, choice in steps:
        if blocks and choice > 5:
            offset = sorted(blocks)[choice % len(blocks)]
            del blocks[offset]
            arena.free(offset)
            continue
        allocated = arena.allocate(size)
        if allocated is not None:
            assert all(
                allocated >= other + blocks[other] or allocated + size <= other for other in blocks
            )
            assert allocated + size <= PAGES * PAGE
            blocks[allocated] = size
    for offset in blocks:
        arena.free(offset)
    assert arena.allocated_bytes == 0
    assert arena.allocate(PAGES * PAGE) == 0


def test_memory_of_a_large_block_goes_back_to_the_system() -> None:
    size = 8 << 20
    arena = Arena(2 * size)
    offset = arena.allocate(size)
    assert offset is not None
    arena.memory[offset : offset + size] = b"\1" * size
    arena.free(offset)
    assert arena.memory[offset : offset + size] == bytes(size)
