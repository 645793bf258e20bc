import numpy as np
import pytest

from tpuserve.graph.row_sharding import DIV, MOD, STRATEGIES, RowSharding


def test_div_gives_each_replica_consecutive_rows() -> None:
    sharding = RowSharding(DIV, num_rows=7, num_replicas=3)
    assert [list(sharding.rows_of(replica)) for replica in range(3)] == [[0, 1, 2], [3, 4, 5], [6]]
    np.testing.assert_array_equal(sharding.owner(np.arange(7)), [0, 0, 0, 1, 1, 1, 2])
    np.testing.assert_array_equal(sharding.local_row(np.arange(7)), [0, 1, 2, 0, 1, 2, 0])


def test_mod_gives_each_replica_every_nth_row() -> None:
    sharding = RowSharding(MOD, num_rows=7, num_replicas=3)
    assert [list(sharding.rows_of(replica)) for replica in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    np.testing.assert_array_equal(sharding.owner(np.arange(7)), [0, 1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(sharding.local_row(np.arange(7)), [0, 0, 0, 1, 1, 1, 2])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("num_rows", [1, 8, 9, 16, 23])
def test_each_row_has_one_owner_and_fits_into_its_part(strategy: str, num_rows: int) -> None:
    sharding = RowSharding(strategy, num_rows, num_replicas=8)
    owners = {}
    for replica in range(8):
        for position, row in enumerate(sharding.rows_of(replica)):
            assert (sharding.owner(row), sharding.local_row(row)) == (replica, position)
            assert position < sharding.rows_per_replica
            owners[row] = replica
    assert sorted(owners) == list(range(num_rows))
    assert sharding.is_complete == (set(owners.values()) == set(range(8)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_first_row_is_the_first_that_a_replica_owns(strategy: str) -> None:
    sharding = RowSharding(strategy, num_rows=23, num_replicas=8)
    assert [sharding.first_row(replica) for replica in range(8)] == [
        sharding.rows_of(replica)[0] for replica in range(8)
    ]
