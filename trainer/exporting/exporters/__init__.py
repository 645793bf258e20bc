"""Exporters, which decide after each evaluation whether to write the checkpoint as a SavedModel."""

from trainer.exporting.exporters.base import Exporter
from trainer.exporting.exporters.best import BestExporter
from trainer.exporting.exporters.final import FinalExporter
from trainer.exporting.exporters.latest import LatestExporter

__all__ = ["BestExporter", "Exporter", "FinalExporter", "LatestExporter"]
