"""The shapes of the parts that PJRT devices have of variables whose rows are divided."""

from typing import Any

import pytest

from tpuserve.pjrt.step_program import StepProgram


def record_shapes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Record, for each divided variable, the shape of its part on each device: name → shapes."""
    shapes: dict[str, Any] = {}
    dispatch = StepProgram.dispatch

    def recording(self: StepProgram, *arguments: Any, **options: Any) -> Any:
        result = dispatch(self, *arguments, **options)
        for index in self.step.row_shardings:
            name = self.step.variables[index].name
            shapes[name] = [shard.shape for shard in self.get_shards(index)]
        return result

    monkeypatch.setattr(StepProgram, "dispatch", recording)
    return shapes
