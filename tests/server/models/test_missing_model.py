"""A path that holds no model is explained with the command that would do."""

from pathlib import Path

import pytest

from server.models.missing_model import explain_missing_model

GIVE = "Give the path of a SavedModel, a directory of its versions, or a .keras file, as: "


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        (
            ["half/1/saved_model.pb"],
            "hlf",
            "there is no {}/hlf. Did you mean: tpuserve serve {}/half",
        ),
        ([], "half", "there is no {}/half. " + GIVE + "tpuserve serve /models/half"),
        ([], "", "{} is empty. " + GIVE + "tpuserve serve /models/half"),
        (["notes"], "", "{} has no model, but notes. " + GIVE + "tpuserve serve /models/half"),
        (
            ["a/1/saved_model.pb", "b/c/saved_model.pb", "d e.keras"],
            "",
            "no version of a model in {}. Run: tpuserve serve '{}/d e.keras' {}/a {}/b/c",
        ),
        (
            ["a/export/7/saved_model.pb", "b/export/7/saved_model.pb"],
            "",
            "no version of a model in {}. Run: tpuserve serve a-export={}/a/export "
            "b-export={}/b/export",
        ),
        (
            ["saved_model.pb"],
            "saved_model.pb",
            "{}/saved_model.pb is a part of a SavedModel. Run: tpuserve serve {}",
        ),
        (
            ["m.h5"],
            "",
            "no version of a model in {}. {}/m.h5 is a file of Keras and no SavedModel. Make a "
            "SavedModel for CPU and TPU of it: tpuserve export {}/m.h5 {}/m",
        ),
        (
            ["m.tflite"],
            "m.tflite",
            "{}/m.tflite is a model of TensorFlow Lite, which is served from a version directory. "
            "Run: mkdir -p {}/m/1 && cp {}/m.tflite {}/m/1/model.tflite && tpuserve serve {}/m "
            "--prefer_tflite_model",
        ),
        (
            ["frozen.pb"],
            "frozen.pb",
            "{}/frozen.pb is a graph without signatures. Import it, write a SavedModel of it with "
            "tf.compat.v1.saved_model.simple_save, and run: tpuserve serve DIRECTORY",
        ),
        (
            ["checkpoint", "model.ckpt-7.index"],
            "",
            "{} has checkpoints, which hold variables without a graph. Export the model with "
            "export_saved_model or tf.saved_model.save, and run: tpuserve serve DIRECTORY",
        ),
        (
            ["notes.txt"],
            "notes.txt",
            "{}/notes.txt is a file of another kind. Give a SavedModel, a directory of its "
            "versions, or a .keras file, as: tpuserve serve /models/half",
        ),
    ],
)
def test_what_is_at_a_path_is_told_with_a_command(
    tmp_path: Path, files: list[str], path: str, message: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert explain_missing_model(tmp_path / path) == message.replace("{}", str(tmp_path))
