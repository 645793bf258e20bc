"""BestExporter: exports the first model, and then each model that is the best so far."""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.errors import InvalidSetting
from tpuserve.export import WarmUp
from trainer.exporting.exporters.base import SavedModelExporter
from trainer.hooks import event_files
from trainer.model.model_program import expected_argument_names

logger = logging.getLogger("tensorflow.trainer")

_COMPARE_ARGUMENTS = ("best_eval_result", "current_eval_result")


def loss_smaller(
    best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]
) -> bool:
    """Return whether the loss of the current result is less than the loss of the best result.

    Args:
      best_eval_result: the metrics of the best evaluation so far, metric name → value.
      current_eval_result: the metrics of the current evaluation, metric name → value.
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


class BestExporter(SavedModelExporter):
    """Exports the first evaluated model, and then each model that is better than the best so far.

    The best model so far may come from an earlier training run, whose metrics are read from the
    event files of evaluate().
    """

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
        """Store the settings; nothing is exported yet.

        Args:
          name: the name of the directory below model_dir/export that receives the exports.
          serving_input_receiver_fn: builds the placeholders and the features of the exported model;
            required.
          event_file_pattern: glob pattern, relative to model_dir, of the event files that hold
            the results of earlier runs. For an EvalSpec with a name, pass
            "eval_NAME/*.tfevents.*". None ignores earlier runs.
          compare_fn: takes best_eval_result and current_eval_result, both metric name → value,
            and returns whether the current result is better.
          assets_extra: path below assets.extra/ → path of the file to copy there.
          as_text: whether to write saved_model.pbtxt instead of saved_model.pb.
          exports_to_keep: the number of exports to keep; older exports are removed. None keeps
            all exports.
          warm_up: which warm-up requests to write into assets.extra/; True writes one request per
            signature and batch size.

        Raises:
          InvalidSetting: compare_fn is None or takes other arguments, exports_to_keep is less
            than 1, or serving_input_receiver_fn is None.
          InvalidType: exports_to_keep is not a whole number.
        """
        _check_compare_fn(compare_fn)
        if serving_input_receiver_fn is None:
            raise InvalidSetting(
                "BestExporter serving_input_receiver_fn is None. Give the function that builds "
                "the placeholders and the features."
            )
        super().__init__(
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

    def _should_export(
        self, estimator: Any, eval_result: Mapping[str, Any], is_the_final_export: bool
    ) -> bool:
        """Return whether the model is the best so far, or the first that this object evaluates."""
        if self._model_dir != estimator.model_dir:
            self._model_dir = estimator.model_dir
            self._best = self._best_of_earlier_runs()
        is_best = self._is_better(self._best, eval_result)
        if not is_best and self._has_exported:
            return False
        if is_best:
            self._best = eval_result
        self._has_exported = True
        logger.info("exporting the %s model", "best" if is_best else "first evaluated")
        return True

    def _best_of_earlier_runs(self) -> Mapping[str, Any] | None:
        """Read the metrics of the best evaluation in the event files; None if there are none."""
        if not self._event_file_pattern:
            return None
        assert self._model_dir is not None
        best: Mapping[str, Any] | None = None
        pattern = os.path.join(self._model_dir, self._event_file_pattern)
        for result in event_files.read_matching_events(pattern):
            if self._is_better(best, result):
                best = result
        return best

    def _is_better(self, best: Mapping[str, Any] | None, current: Mapping[str, Any]) -> bool:
        return best is None or self._compare_fn(best_eval_result=best, current_eval_result=current)


def _check_compare_fn(compare_fn: Any) -> None:
    """Check that compare_fn takes exactly best_eval_result and current_eval_result."""
    if not callable(compare_fn):
        raise InvalidSetting(
            f"compare_fn is {compare_fn!r}. Give a function of best_eval_result and "
            f"current_eval_result."
        )
    arguments = expected_argument_names(compare_fn)
    missing = [name for name in _COMPARE_ARGUMENTS if name not in arguments]
    unknown = [name for name in arguments if name not in _COMPARE_ARGUMENTS]
    if missing or unknown:
        raise InvalidSetting(
            f"compare_fn {compare_fn!r} must include the arguments "
            f"{' and '.join(_COMPARE_ARGUMENTS)} and has not expected others; missing: "
            f"{', '.join(missing) or 'none'}; not expected: {', '.join(unknown) or 'none'}."
        )
