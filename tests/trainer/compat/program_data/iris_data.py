"""Writes synthetic iris measurements as the CSV files of the program iris_columns.py."""

import random
from pathlib import Path

MEASUREMENTS = ("SepalLength", "SepalWidth", "PetalLength", "PetalWidth")
# For each species, the means of the four measurements.
_MEANS = ((5.0, 3.4, 1.5, 0.2), (5.9, 2.8, 4.3, 1.3), (6.6, 3.0, 5.6, 2.0))


def write_csv_files(directory: Path) -> None:
    """Write 120 rows for training and 32 rows for evaluation."""
    generator = random.Random(0)
    for name, rows in (("iris_training.csv", 120), ("iris_test.csv", 32)):
        lines = [f"{rows},4,setosa,versicolor,virginica"]
        for row in range(rows):
            measurements = [f"{generator.gauss(mean, 0.15):.1f}" for mean in _MEANS[row % 3]]
            garden = generator.choice(("north", "south", "west"))
            lines.append(",".join([*measurements, garden, str(row % 3)]))
        (directory / name).write_text("\n".join(lines) + "\n")
