import pytest

from tpuserve.compilation.compile_report import choose_batch_buckets, uniform_load


def test_all_candidates_are_chosen_if_the_limit_allows() -> None:
    # Requests of 1, 2, 3 and 4 rows are padded to 1, 2, 4 and 4: 11 computed rows, 1 of padding.
    plan = choose_batch_buckets(uniform_load(4), [1, 2, 4], most=3)
    assert plan.batch_sizes == (1, 2, 4)
    assert plan.padding == pytest.approx(1 / 11)


def test_the_sizes_that_pad_the_least_are_chosen() -> None:
    # With sizes 4 and 8, four requests are padded to 4 rows and four to 8: 48 computed rows. Sizes
    # 1 and 8 would compute 57 rows, sizes 2 and 8 would compute 52.
    assert choose_batch_buckets(uniform_load(8), [1, 2, 4, 8], most=2).batch_sizes == (4, 8)
    assert choose_batch_buckets(uniform_load(8), [1, 2, 4, 8], most=2).padding == pytest.approx(
        1 - 36 / 48
    )


def test_the_largest_size_is_always_chosen() -> None:
    assert choose_batch_buckets({1: 1.0}, [1, 8], most=1).batch_sizes == (8,)


def test_a_size_that_saves_no_padding_is_not_chosen() -> None:
    assert choose_batch_buckets({8: 1.0, 64: 3.0}, [1, 8, 64], most=3).batch_sizes == (8, 64)


def test_frequent_request_sizes_weigh_more() -> None:
    assert choose_batch_buckets({1: 9.0, 5: 1.0}, [1, 5, 8], most=2).batch_sizes == (1, 8)
    assert choose_batch_buckets({1: 1.0, 5: 9.0}, [1, 5, 8], most=2).batch_sizes == (5, 8)


def test_an_oversized_request_counts_as_the_batches_it_is_split_into() -> None:
    # 19 rows are two batches of 8 and one of 3, which is padded to 4.
    plan = choose_batch_buckets({19: 1.0}, [4, 8], most=2)
    assert plan == choose_batch_buckets({8: 2.0, 3: 1.0}, [4, 8], most=2)
    assert plan.padding == pytest.approx(1 - 19 / 20)
