"""The statistics of a version are the sums of its runs, and are counted by rows within a limit."""

from server.dataplane.inference_statistics import InferenceStatistics, SizeStatistics


def test_runs_and_stages_are_added_up_by_rows() -> None:
    statistics = InferenceStatistics()
    statistics.add_runs(3, 1, 100)
    statistics.add_runs(3, 2, 50)
    statistics.add_runs(1, 1, 20)
    statistics.add_stages(3, 7, 11)
    statistics.add_stages(3, 2, 3)
    copy = statistics.copy()
    statistics.add_stages(1, 1, 2)
    assert (statistics.num_runs, statistics.decode_ns, statistics.encode_ns) == (4, 10, 16)
    assert statistics.sizes == {
        1: SizeStatistics(1, 1, 20, 2),
        3: SizeStatistics(3, 9, 150, 14),
    }
    assert copy.sizes[1] == SizeStatistics(1, 0, 20, 0)


def test_number_of_sizes_is_limited() -> None:
    statistics = InferenceStatistics()
    for rows in range(1000):
        statistics.add_runs(rows, 1, 1)
        statistics.add_stages(rows, 1, 1)
    assert (statistics.num_runs, statistics.decode_ns) == (1000, 1000)
    assert len(statistics.sizes) == 256
