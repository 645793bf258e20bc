"""The field at a position is found, also in texts that cannot be parsed."""

import pytest

from server.config.textproto import find_field

TEXT = """# a comment { with
models {
  config { name: "a # {" path: '}' ; labels { key: x } }
  config < [type.googleapis.com/a.B] { numbers: [1, 2] on: true
"""


@pytest.mark.parametrize(
    ("line", "column", "field"),
    [
        (1, 5, ""),
        (2, 1, "models"),
        (3, 12, "models.config.name"),
        (3, 18, "models.config.name"),
        (3, 32, "models.config.path"),
        (3, 52, "models.config.labels.key"),
        (3, 54, "models.config"),
        (4, 52, "models.config.type.googleapis.com/a.B.numbers"),
        (4, 60, "models.config.type.googleapis.com/a.B.on"),
    ],
)
def test_field_is_told_with_those_around_it(line: int, column: int, field: str) -> None:
    assert find_field(TEXT, line, column) == field
