"""BestExporter: exports a model only when it is better than all before."""

import inspect
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.errors import InvalidSetting
from tpuserve.export import WarmUp
from trainer.exporting.base import Exporter, SavedModelExporter
from trainer.hooks import event_files

logger = logging.getLogger("tensorflow.trainer")

_COMPARE_ARGUMENTS = ("best_eval_result", "current_eval_result")


def loss_smaller(
    best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]
) -> bool:
    """Whether the loss of the current result is less than that of the best.

    Raises:
      InvalidSetting: a result is empty, or has no loss.
    """
    for name, result in (
        ("best_eval_result", best_eval_result),
        ("current_eval_result", current_eval_result),
    ):
        if not result or "loss" not in result:
            raise InvalidSetting(
                f"{name} cannot be empty or without a loss; found {result!r}. Give BestExporter a "
                f"compare_fn of your own."
            )
    return bool(best_eval_result["loss"] > current_eval_result["loss"])


class BestExporter(Exporter):
    """Exports the first evaluated model, and then each that is better than the best so far."""

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., bool] = loss_smaller,
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
          event_file_pattern: where below model_dir the results of earlier runs are, so that a
            restart knows what was the best; "eval_NAME/*.tfevents.*" for an EvalSpec with a
            name. None forgets them.
          compare_fn: takes best_eval_result and current_eval_result, both metric → value, and
            says whether the current is better.
          assets_extra: path below assets.extra/ → file to copy there.
          as_text: write saved_model.pbtxt in place of saved_model.pb.
          exports_to_keep: older ones are removed; None keeps all.
          warm_up: see `Estimator.export_saved_model`.

        Raises:
          InvalidSetting: compare_fn is None or takes other arguments, exports_to_keep is less
            than 1, or serving_input_receiver_fn is None.
        """
        _check_compare_fn(compare_fn)
        if serving_input_receiver_fn is None:
            raise InvalidSetting(
                "BestExporter serving_input_receiver_fn is None. Give the function that builds "
                "the placeholders and the features."
            )
        self._exporter = SavedModelExporter(
            name,
            serving_input_receiver_fn,
            assets_extra,
            as_text,
            exports_to_keep,
            warm_up=warm_up,
        )
        self._event_file_pattern = event_file_pattern
        self._compare_fn = compare_fn
        self._model_dir: str | None = None
        self._best: Mapping[str, Any] | None = None
        self._has_exported = False

    @property
    def name(self) -> str:
        """The directory below model_dir/export where the exports go."""
        return self._exporter.name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        """Exports the checkpoint if it is better than the best, or the first one seen here.

        The first one does not become the best by that: what an earlier run has reached stays
        the mark.
        """
        if self._model_dir != estimator.model_dir:
            self._model_dir = estimator.model_dir
            self._best = self._best_of_earlier_runs()
        is_best = self._is_better(self._best, eval_result)
        if not is_best and self._has_exported:
            return None
        if is_best:
            self._best = eval_result
        self._has_exported = True
        logger.info("exporting the %s model", "best" if is_best else "first evaluated")
        return self._exporter.export(
            estimator, export_path, checkpoint_path, eval_result, is_the_final_export
        )

    def _best_of_earlier_runs(self) -> Mapping[str, Any] | None:
        if not self._event_file_pattern:
            return None
        assert self._model_dir is not None
        best: Mapping[str, Any] | None = None
        for result in event_files.read_matching_events(
            os.path.join(self._model_dir, self._event_file_pattern)
        ):
            if self._is_better(best, result):
                best = result
        return best

    def _is_better(self, best: Mapping[str, Any] | None, current: Mapping[str, Any]) -> bool:
        return best is None or self._compare_fn(best_eval_result=best, current_eval_result=current)


def _check_compare_fn(compare_fn: Any) -> None:
    if not callable(compare_fn):
        raise InvalidSetting(
            f"compare_fn is {compare_fn!r}. Give a function of best_eval_result and "
            f"current_eval_result."
        )
    arguments = inspect.signature(compare_fn).parameters
    missing = [name for name in _COMPARE_ARGUMENTS if name not in arguments]
    unknown = [name for name in arguments if name not in _COMPARE_ARGUMENTS]
    if missing or unknown:
        raise InvalidSetting(
            f"compare_fn {compare_fn!r} must include the arguments "
            f"{' and '.join(_COMPARE_ARGUMENTS)} and has not expected others; missing: "
            f"{', '.join(missing) or 'none'}; not expected: {', '.join(unknown) or 'none'}."
        )
