from pathlib import Path

from trainer.hooks import event_files


def test_results_of_one_step_are_joined_and_the_later_counts(tmp_path: Path) -> None:
    for values in ({"loss": 1.0, "a": 0.5}, {"b": 0.25}, {"loss": 2.0}):
        event_files.write_scalars(str(tmp_path), values, 3)
    assert event_files.read_eval_events(str(tmp_path)) == {3: {"loss": 2.0, "a": 0.5, "b": 0.25}}


def test_only_whole_evaluations_are_results(tmp_path: Path) -> None:
    event_files.write_scalars(str(tmp_path), {"loss": 1.0, "a": 0.5}, 3)
    event_files.write_scalars(str(tmp_path), {"steps_per_second": 7.0}, 4)
    results = event_files.read_matching_events(f"{tmp_path}/*.tfevents.*")
    assert results == [{"loss": 1.0, "a": 0.5, "global_step": 3}]


def test_a_record_that_is_cut_off_ends_its_file(tmp_path: Path) -> None:
    event_files.write_scalars(str(tmp_path), {"loss": 1.0}, 3)
    event_files.write_scalars(str(tmp_path), {"loss": 2.0}, 4)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert event_files.read_eval_events(str(tmp_path)) == {3: {"loss": 1.0}}


def test_a_directory_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert event_files.read_eval_events(str(tmp_path / "eval")) == {}
