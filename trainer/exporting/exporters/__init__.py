"""Exporters: the policies that decide which evaluated checkpoints become SavedModels."""

from trainer.exporting.exporters.base import Exporter
from trainer.exporting.exporters.best import BestExporter
from trainer.exporting.exporters.final import FinalExporter
from trainer.exporting.exporters.latest import LatestExporter

__all__ = ["BestExporter", "Exporter", "FinalExporter", "LatestExporter"]
