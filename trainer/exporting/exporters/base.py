"""The exporter interface, and the base class of the exporters that write SavedModels."""

import abc
from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.export import WarmUp
from tpuserve.export.warm_up import normalize_warm_up
from trainer.exporting import gc


class Exporter(abc.ABC):
    """Decides after each evaluation of train_and_evaluate whether to export the model.

    Subclass this class to write your own exporter.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the directory below model_dir/export that receives the exports."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        """Export the checkpoint that was evaluated, or decide not to.

        Args:
          export_path: the directory that receives the version directories.
          eval_result: the metrics of the evaluation: metric name → value, including "global_step".
          is_the_final_export: whether training is over.

        Returns:
          The path of the new version directory as bytes, or None if nothing was exported.
        """


class SavedModelExporter(Exporter):
    """Exports a checkpoint if `_should_export` returns true, and then removes old exports.

    The public exporters are subclasses: each defines in `_should_export` when to export.

    Args:
      name: the name of the directory below model_dir/export that receives the exports.
      assets_extra: path below assets.extra/ → path of the file to copy there.
      as_text: whether to write saved_model.pbtxt instead of saved_model.pb.
      exports_to_keep: the number of exports to keep; older exports are removed. None keeps
        all exports.
      warm_up: which warm-up requests to write into assets.extra/; True writes one request per
        signature and batch size.
    """

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
        gc.check_exports_to_keep(exports_to_keep)
        self._name = name
        self._serving_input_receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text
        self._exports_to_keep = exports_to_keep
        # Pass warm_up to the estimator only if set, because a user-defined estimator may not accept
        # the argument.
        self._optional_arguments = (
            {} if warm_up is None else {"warm_up": normalize_warm_up(warm_up)}
        )

    @property
    def name(self) -> str:
        """The name of the directory below model_dir/export that receives the exports."""
        return self._name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        """Export the checkpoint if `_should_export` returns true, and then remove old exports.

        Args:
          estimator: the estimator whose model was evaluated.
          export_path: the directory that receives the version directories.
          checkpoint_path: the checkpoint that was evaluated.
          eval_result: the metrics of the evaluation: metric name → value, including "global_step".
          is_the_final_export: whether training is over.

        Returns:
          The path of the new version directory as bytes, or None if nothing was exported.
        """
        if not self._should_export(estimator, eval_result, is_the_final_export):
            return None
        directory: bytes = estimator.export_saved_model(
            export_path,
            self._serving_input_receiver_fn,
            assets_extra=self._assets_extra,
            as_text=self._as_text,
            checkpoint_path=checkpoint_path,
            **self._optional_arguments,
        )
        gc.remove_old_exports(export_path, self._exports_to_keep)
        return directory

    def _should_export(
        self, estimator: Any, eval_result: Mapping[str, Any], is_the_final_export: bool
    ) -> bool:
        """Return whether to export the checkpoint that was evaluated; by default always."""
        return True
