"""Flowers like irises, as the CSV files of the program iris_columns.py."""

import random
from pathlib import Path

MEASURES = ("SepalLength", "SepalWidth", "PetalLength", "PetalWidth")
# The mean of sepal length and width, petal length and width, of each species.
_MEANS = ((5.0, 3.4, 1.5, 0.2), (5.9, 2.8, 4.3, 1.3), (6.6, 3.0, 5.6, 2.0))


def write(directory: Path) -> None:
    """120 flowers to train on, and 32 to evaluate."""
    numbers = random.Random(0)
    for name, rows in (("iris_training.csv", 120), ("iris_test.csv", 32)):
        lines = [f"{rows},4,setosa,versicolor,virginica"]
        for row in range(rows):
            measures = [f"{numbers.gauss(mean, 0.15):.1f}" for mean in _MEANS[row % 3]]
            garden = numbers.choice(("north", "south", "west"))
            lines.append(",".join([*measures, garden, str(row % 3)]))
        (directory / name).write_text("\n".join(lines) + "\n")
