"""LatestExporter: exports the model after every evaluation."""

from collections.abc import Callable, Mapping
from typing import Any

from tpuserve.export import WarmUp
from trainer.exporting.exporters.base import SavedModelExporter


class LatestExporter(SavedModelExporter):
    """Exports the model after every evaluation, and keeps the newest exports."""

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
        """Store the settings; nothing is exported yet.

        Args:
          name: the name of the directory below model_dir/export that receives the exports.
          serving_input_receiver_fn: builds the placeholders and the features of the exported model.
          assets_extra: path below assets.extra/ → path of the file to copy there.
          as_text: whether to write saved_model.pbtxt instead of saved_model.pb.
          exports_to_keep: the number of exports to keep; older exports are removed. None keeps
            all exports.
          warm_up: which warm-up requests to write into assets.extra/; True writes one request per
            signature and batch size.

        Raises:
          InvalidSetting: exports_to_keep is less than 1.
          InvalidType: exports_to_keep is not a whole number.
        """
        super().__init__(
            name,
            serving_input_receiver_fn,
            assets_extra,
            as_text,
            exports_to_keep,
            warm_up=warm_up,
        )
