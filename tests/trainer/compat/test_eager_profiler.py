from pathlib import Path

import pytest

from trainer.compat import eager_profiler


@pytest.mark.slow
def test_a_profile_is_written_where_tensorboard_reads_it(tmp_path: Path) -> None:
    eager_profiler.start()
    with pytest.raises(eager_profiler.ProfilerAlreadyRunningError):
        eager_profiler.start()
    result = eager_profiler.stop()
    eager_profiler.save(str(tmp_path), result)
    (file,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert file.read_bytes() == result != b""


def test_stop_without_a_start_is_an_error() -> None:
    with pytest.raises(eager_profiler.ProfilerNotRunningError):
        eager_profiler.stop()
