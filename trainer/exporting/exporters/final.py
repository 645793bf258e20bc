"""FinalExporter: exports the model once, at the end of training."""

from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.export import WarmUp
from trainer.exporting.exporters.base import SavedModelExporter


class FinalExporter(SavedModelExporter):
    """Exports the model once, when training is over."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        *,
        warm_up: WarmUp | bool | None = None,
    ) -> None:
        """Store the settings; nothing is exported yet.

        Args:
          name: the name of the directory below model_dir/export that receives the export.
          serving_input_receiver_fn: builds the placeholders and the features of the exported model.
          assets_extra: path below assets.extra/ → path of the file to copy there.
          as_text: whether to write saved_model.pbtxt instead of saved_model.pb.
          warm_up: which warm-up requests to write into assets.extra/; True writes one request per
            signature and batch size.
        """
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, warm_up=warm_up)

    def _should_export(
        self, estimator: Any, eval_result: Mapping[str, Any], is_the_final_export: bool
    ) -> bool:
        """Return whether training is over, because the model is exported only at the end."""
        return is_the_final_export
