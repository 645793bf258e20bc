"""What every exporter is: the interface, and the export itself."""

import abc
from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.export import WarmUp
from tpuserve.export.warm_up import normalize_warm_up
from trainer.exporting import gc


class Exporter(abc.ABC):
    """Decides after each evaluation of train_and_evaluate whether to export the model."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The directory below model_dir/export where its exports go."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        """The directory of the new export, or None where there is none.

        Args:
          estimator: what to export.
          export_path: where version directories go.
          checkpoint_path: what was evaluated, and is to be exported.
          eval_result: its metrics by name.
          is_the_final_export: whether training is over.
        """


class SavedModelExporter(Exporter):
    """Exports every time; the other exporters choose when to call it."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = None,
        *,
        warm_up: WarmUp | bool | None = None,
    ) -> None:
        """Exports nothing yet; see `LatestExporter` for the arguments."""
        gc.check_exports_to_keep(exports_to_keep)
        self._name = name
        self._serving_input_receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text
        self._exports_to_keep = exports_to_keep
        # Left out where it is not asked for: an estimator of the user's own need not know it.
        self._more = {} if warm_up is None else {"warm_up": normalize_warm_up(warm_up)}

    @property
    def name(self) -> str:
        """The directory below model_dir/export where the exports go."""
        return self._name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        """Exports the checkpoint, then removes the exports that are too many."""
        directory = estimator.export_saved_model(
            export_path,
            self._serving_input_receiver_fn,
            assets_extra=self._assets_extra,
            as_text=self._as_text,
            checkpoint_path=checkpoint_path,
            **self._more,
        )
        gc.remove_old_exports(export_path, self._exports_to_keep)
        return directory
