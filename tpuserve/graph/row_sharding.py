"""Divides the rows of an embedding table among the replicas of a TPU program.

An embedding table is a variable, and so is each optimizer slot of the table.
"""

from dataclasses import dataclass
from typing import Any

ATTRIBUTE = "_tpuserve_row_sharding"
# The possible values of `ATTRIBUTE`. They are partition strategies of tf.nn.embedding_lookup. With
# "div", each replica owns successive rows of a table.
DIV = "div"
MOD = "mod"
STRATEGIES = (DIV, MOD)


@dataclass(frozen=True)
class RowSharding:
    """The division of the rows of one embedding table among replicas.

    The methods `owner`, `local_row` and `first_row` take an int, a numpy array or an integer
    tensor.
    """

    strategy: str
    num_rows: int
    num_replicas: int

    @property
    def rows_per_replica(self) -> int:
        """The number of rows that each replica stores: the rows that it owns, and padding rows."""
        return -(-self.num_rows // self.num_replicas)

    @property
    def is_complete(self) -> bool:
        """Whether each replica owns at least one row.

        If this is False, the table is not divided, and each replica stores all rows.
        """
        if self.strategy == MOD:
            return self.num_rows >= self.num_replicas
        return self.rows_per_replica * (self.num_replicas - 1) < self.num_rows

    def owner(self, rows: Any) -> Any:
        """Return, for each row number of the table, the index of the replica that owns the row."""
        return rows % self.num_replicas if self.strategy == MOD else rows // self.rows_per_replica

    def local_row(self, rows: Any) -> Any:
        """Return the position of each row among all rows of the replica that owns the row."""
        return rows // self.num_replicas if self.strategy == MOD else rows % self.rows_per_replica

    def first_row(self, replica: Any) -> Any:
        """Return the row number, in the table, of the first row that a replica owns."""
        return replica if self.strategy == MOD else replica * self.rows_per_replica

    def rows_of(self, replica: int) -> range:
        """Return the row numbers, in the table, of the rows that a replica owns.

        The order of the numbers is that in which the replica stores the rows.
        """
        if self.strategy == MOD:
            return range(replica, self.num_rows, self.num_replicas)
        first = min(replica * self.rows_per_replica, self.num_rows)
        return range(first, min(first + self.rows_per_replica, self.num_rows))
