"""Exporters: which of the evaluated checkpoints become SavedModels."""

from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.export import WarmUp
from trainer.exporting.base import Exporter, SavedModelExporter
from trainer.exporting.best import BestExporter

__all__ = ["BestExporter", "Exporter", "FinalExporter", "LatestExporter"]


class FinalExporter(Exporter):
    """Exports once, when training is over."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        *,
        warm_up: WarmUp | bool | None = None,
    ) -> None:
        """Exports nothing yet.

        Args:
          name: the directory below model_dir/export where the export goes.
          serving_input_receiver_fn: builds the placeholders and the features.
          assets_extra: path below assets.extra/ → file to copy there.
          as_text: write saved_model.pbtxt in place of saved_model.pb.
          warm_up: see `Estimator.export_saved_model`.
        """
        self._exporter = SavedModelExporter(
            name, serving_input_receiver_fn, assets_extra, as_text, warm_up=warm_up
        )

    @property
    def name(self) -> str:
        """The directory below model_dir/export where the export goes."""
        return self._exporter.name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        """Exports the checkpoint if training is over."""
        if not is_the_final_export:
            return None
        return self._exporter.export(
            estimator, export_path, checkpoint_path, eval_result, is_the_final_export
        )


class LatestExporter(SavedModelExporter):
    """Exports after every evaluation, and keeps the newest exports."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
        *,
        warm_up: WarmUp | bool | None = None,
    ) -> None:
        """Exports nothing yet.

        Args:
          name: the directory below model_dir/export where the exports go.
          serving_input_receiver_fn: builds the placeholders and the features.
          assets_extra: path below assets.extra/ → file to copy there.
          as_text: write saved_model.pbtxt in place of saved_model.pb.
          exports_to_keep: older ones are removed; None keeps all.
          warm_up: see `Estimator.export_saved_model`.

        Raises:
          InvalidSetting: exports_to_keep is less than 1.
        """
        super().__init__(
            name,
            serving_input_receiver_fn,
            assets_extra,
            as_text,
            exports_to_keep,
            warm_up=warm_up,
        )
