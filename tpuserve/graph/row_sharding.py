"""The division of an embedding table's rows among the replicas of a TPU program.

A table is one variable, and each slot of an optimizer for the table is another. If the rows of such
a variable are divided, its VarHandleOp has the attribute `ATTRIBUTE`. The ops of the step number
the rows as in the whole table, and each replica reads and changes only the rows that it owns.
"""

from dataclasses import dataclass
from typing import Any

ATTRIBUTE = "_tpuserve_row_sharding"
# The values of the attribute, the partition strategies of tf.nn.embedding_lookup. With "div",
# replica 0 of n owns the first rows of a table; with "mod", every n-th row.
DIV = "div"
MOD = "mod"
STRATEGIES = (DIV, MOD)


@dataclass(frozen=True)
class RowSharding:
    """The division of the rows of one table.

    The methods take row numbers as an int, a numpy array, or an integer tensor.

    Attributes:
      strategy: "div" or "mod".
      num_rows: number of rows of the table.
      num_replicas: number of replicas that share the table.
    """

    strategy: str
    num_rows: int
    num_replicas: int

    @property
    def rows_per_replica(self) -> int:
        """The largest number of rows that a replica owns: the size of its part, with padding."""
        return -(-self.num_rows // self.num_replicas)

    @property
    def is_complete(self) -> bool:
        """Whether each replica owns at least one row.

        If not, the table is not divided: it has no attribute, and each replica has all rows.
        """
        if self.strategy == MOD:
            return self.num_rows >= self.num_replicas
        return self.rows_per_replica * (self.num_replicas - 1) < self.num_rows

    def owner(self, rows: Any) -> Any:
        """Return, for each of the given rows, the number of the replica that owns the row."""
        return rows % self.num_replicas if self.strategy == MOD else rows // self.rows_per_replica

    def local_row(self, rows: Any) -> Any:
        """Return, for each of the given rows, its position among the rows of its owner."""
        return rows // self.num_replicas if self.strategy == MOD else rows % self.rows_per_replica

    def first_row(self, replica: Any) -> Any:
        """Return the number of the first row that a replica owns."""
        return replica if self.strategy == MOD else replica * self.rows_per_replica

    def rows_of(self, replica: int) -> range:
        """Return the numbers of the rows that a replica owns, in the order in which it has them."""
        if self.strategy == MOD:
            return range(replica, self.num_rows, self.num_replicas)
        first = min(replica * self.rows_per_replica, self.num_rows)
        return range(first, min(first + self.rows_per_replica, self.num_rows))
