import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer import exports
from tests.trainer.compat import program_runner
from tests.trainer.compat.program_data import image_data, iris_data, sentiment_data

pytestmark = [pytest.mark.slow, pytest.mark.first]

# Without a TPU, and on an emulated TPU of 8 cores.
with_and_without_tpu = pytest.mark.parametrize("cores", [0, 8])


@with_and_without_tpu
@pytest.mark.numeric
def test_bert_like_classifier_trains_evaluates_predicts_and_exports(
    cores: int, tmp_path: Path
) -> None:
    data = sentiment_data.write_data(tmp_path / "data")
    table = np.full([len(sentiment_data.WORD_PIECES), sentiment_data.HIDDEN], 0.5, np.float32)
    table[:, ::2] = np.random.default_rng(0).normal(
        size=[len(sentiment_data.WORD_PIECES), sentiment_data.HIDDEN // 2]
    )
    start = program_runner.write_checkpoint(
        tmp_path / "start", {"bert/embeddings/word_embeddings": table}
    )
    output = tmp_path / "model"
    program_runner.run_program(
        "bert_like/run_classifier.py",
        *data.flags,
        *("--do_train", "--do_eval", "--do_predict", f"--export_dir={output / 'export'}"),
        *(f"--output_dir={output}", f"--init_checkpoint={start}", f"--use_tpu={bool(cores)}"),
        *("--learning_rate=0.005", "--num_train_epochs=15", "--iterations_per_loop=10"),
        *("--tpu_name=local",) * bool(cores),
        cores=cores,
    )

    # Only weight decay changes the embedding of a word piece that occurs in no sentence.
    trained = tf.train.load_variable(str(output), "bert/embeddings/word_embeddings")
    np.testing.assert_allclose(
        trained[sentiment_data.UNUSED_PIECE], table[sentiment_data.UNUSED_PIECE], rtol=5e-3
    )

    probabilities = np.loadtxt(output / "test_results.tsv")
    assert probabilities.shape == (13, 2)
    chosen = probabilities[np.arange(13), data.dev_labels]
    results = dict(
        line.split(" = ") for line in (output / "eval_results.txt").read_text().splitlines()
    )
    # Padding does not count: on a TPU, 16 rows are evaluated.
    accuracy = np.mean(chosen > 0.5)
    assert float(results["eval_accuracy"]) == pytest.approx(accuracy)
    assert float(results["eval_loss"]) == pytest.approx(-np.log(chosen).mean(), rel=1e-3)
    assert accuracy > 0.75
    assert results["global_step"] == "60"

    inputs = sentiment_data.read_records(output / "predict.tf_record")
    served = exports.answers(program_runner.find_newest_export(output / "export"), inputs)
    np.testing.assert_allclose(served["probabilities"][:13], probabilities, rtol=1e-3, atol=1e-5)


@with_and_without_tpu
@pytest.mark.numeric
def test_resnet_like_trains_and_evaluates_its_checkpoints(cores: int, tmp_path: Path) -> None:
    image_data.write_records(tmp_path / "data")
    model = tmp_path / "model"
    output = program_runner.run_program(
        "resnet_like.py",
        *(f"--data_dir={tmp_path / 'data'}", f"--model_dir={model}", f"--use_tpu={bool(cores)}"),
        f"--precision={'bfloat16' if cores else 'float32'}",
        # 8 rows on each core: 4 rows would be too few for the statistics of batch normalization.
        *("--train_batch_size=64", "--num_train_images=128"),
        "--hparams=base_learning_rate=0.05,momentum=0.8,filters=[8]",
        cores=cores,
    )

    evaluated = program_runner.read_scalars(model / "eval")
    assert sorted(evaluated["top_1_accuracy"]) == [12, 24]
    assert evaluated["top_1_accuracy"][24] > 0.7
    assert evaluated["top_5_accuracy"][24] >= evaluated["top_1_accuracy"][24]
    match = re.search(r"^step 24: top_1 (\S+) top_5 (\S+)", output, re.MULTILINE)
    assert match is not None
    assert float(match[1]) == pytest.approx(evaluated["top_1_accuracy"][24], abs=1e-4)

    scalars = program_runner.read_scalars(model)
    # A step trains on half of the images.
    assert scalars["current_epoch"][23] == 11.5
    # The base rate is for 32 rows. For 64 rows it is doubled after a warm-up of 2 epochs, and
    # divided by 100 from epoch 11.
    assert scalars["learning_rate"][5] == pytest.approx(0.1)
    assert scalars["learning_rate"][23] == pytest.approx(0.001)
    losses = [loss for _, loss in sorted(scalars["host_loss"].items())]
    assert losses[-1] < losses[0] - 0.5

    mean = tf.train.load_variable(str(model), "resnet/batch_normalization/moving_mean")
    assert np.abs(mean).max() > 0.01
    images = {"input": np.full([2, 8, 8, 3], 0.25, np.float32)}
    served = exports.answers(program_runner.find_newest_export(model / "export"), images)
    np.testing.assert_allclose(served["probabilities"].sum(axis=1), 1, rtol=1e-3)


@with_and_without_tpu
def test_electra_like_pretrains_with_its_own_hook(cores: int, tmp_path: Path) -> None:
    sentence = "{} {} {} {} it\n"
    words = (("the", "a"), ("small", "big"), ("cat", "dog"), ("eats", "sees"))
    (tmp_path / "corpus.txt").write_text(
        "".join(
            sentence.format(*(pair[number >> bit & 1] for bit, pair in enumerate(words)))
            for number in range(64)
        )
    )
    sizes = {"num_train_steps": 120, "save_checkpoints_steps": 60, "num_eval_steps": 8}
    output = program_runner.run_program(
        "electra_like.py",
        *("--data-dir", tmp_path, "--model-name", "tiny"),
        *("--hparams", json.dumps({"use_tpu": bool(cores), **sizes})),
        cores=cores,
    )

    losses = re.findall(r"^\d+/120 = .*ETA: \d+s(?:, loss: (\S+))?$", output, re.MULTILINE)
    assert len(losses) == 12
    assert output.endswith("trained until step 120\n")
    if not cores:
        assert float(losses[-1]) < float(losses[0]) - 1
    results = json.loads((tmp_path / "models/tiny/results.json").read_text())
    assert results["global_step"] == 120
    # Untrained, the losses are ln 16 = 2.8 and ln 2 = 0.7. The masked words are random, so fewer
    # steps or rows would sometimes miss the limits.
    assert results["masked_lm_loss"] < 1.8
    assert results["disc_loss"] < 0.5
    # Two words in seven are masked, and the generator replaces some of them by the same word.
    assert results["disc_accuracy"] > 5 / 7


@with_and_without_tpu
def test_both_estimators_learn_irises_by_feature_columns(cores: int, tmp_path: Path) -> None:
    iris_data.write_csv_files(tmp_path)
    output = program_runner.run_program(
        "iris_columns.py",
        *("--data_dir", tmp_path, "--model_dir", tmp_path / "model"),
        *("--use_tpu",) * bool(cores),
        cores=cores,
    )

    accuracies = re.findall(r"^(\w+): accuracy (\S+)$", output, re.MULTILINE)
    assert [name for name, _ in accuracies] == ["Estimator", "TPUEstimator"]
    assert all(float(accuracy) > 0.9 for _, accuracy in accuracies)
    predictions = re.findall(r"^Prediction is (\w+), expected (\w+)$", output, re.MULTILINE)
    assert len(predictions) == 3
    assert all(actual == expected for actual, expected in predictions)

    measurements = zip(iris_data.MEASUREMENTS, ([5.0], [3.4], [1.5], [0.2]), strict=True)
    inputs = program_runner.make_example_inputs({**dict(measurements), "Garden": b"west"})
    served = exports.answers(
        program_runner.find_newest_export(tmp_path / "model/tpu_estimator_export"), inputs
    )
    assert served["class_ids"].tolist() == [0]
    plain = program_runner.predict_on_cpu(
        program_runner.find_newest_export(tmp_path / "model/estimator_export"), inputs
    )
    assert plain["class_ids"].tolist() == [[0]]


def test_gan_like_trains_with_two_optimizers_and_writes_samples_on_the_host(tmp_path: Path) -> None:
    steps = ("--train_steps=16", "--train_steps_per_eval=8")
    output = program_runner.run_program("gan_like.py", f"--model_dir={tmp_path}", *steps, cores=8)

    assert re.findall(r"^(?:starts|ends) at \d+$", output, re.MULTILINE) == [
        "starts at 0",
        "ends at 16",
    ]
    scores = re.findall(r"^step (\d+): real (\S+) made (\S+)$", output, re.MULTILINE)
    assert [step for step, _, _ in scores] == ["8", "16"]
    real_score, generated_score = map(float, scores[-1][1:])
    assert real_score > generated_score
    samples = np.loadtxt(tmp_path / "samples/16.txt")
    assert samples.shape == (20, 64)
    assert np.abs(samples).max() <= 1
    # The program's saver keeps one checkpoint. Every step writes a summary.
    assert [path.name for path in tmp_path.glob("*.index")] == ["model.ckpt-16.index"]
    assert sorted(program_runner.read_scalars(tmp_path)["critic_loss"]) == list(range(16))


def test_gpt_like_trains_with_its_own_optimizer_and_decodes_in_a_loop(tmp_path: Path) -> None:
    sizes = {"n_embd": 16, "n_ctx": 10, "n_vocab": 8, "n_layer": 1, "n_head": 2, "accumulate": 2}
    params = json.dumps({"model_path": str(tmp_path), **sizes})
    output = program_runner.run_program(
        "gpt_like.py", "--tpu", "local", "--params", params, cores=8
    )

    # Untrained, the perplexity is 8.
    perplexity, *rows = output.splitlines()
    assert float(perplexity.removeprefix("perplexity ")) < 2
    decoded = [[int(number) for number in row.split()] for row in rows]
    assert decoded == [[(first + place) % 5 for place in range(10)] for first in range(10)]


def test_tensorflow_2_program_keeps_tensorflow_2(tmp_path: Path) -> None:
    output = program_runner.run_program("plain_estimator.py", tmp_path, "--tpu", "both", cores=8)
    accuracies = re.findall(r"^(\w+) at step 100: accuracy (\S+)$", output, re.MULTILINE)
    assert [name for name, _ in accuracies] == ["estimator", "no_tpu", "tpu"]
    assert all(float(accuracy) > 0.9 for _, accuracy in accuracies)
    # The point (1, 0) is at a quarter past, in the first third of the hour.
    exported = program_runner.find_newest_export(tmp_path / "estimator/export/latest")
    assert program_runner.predict_on_cpu(
        exported, program_runner.make_example_inputs({"point": [1.0, 0.0]})
    )["third"].tolist() == [0]


def test_program_that_imports_trainer_compat_runs_with_python(tmp_path: Path) -> None:
    output = program_runner.run_with_python("first_line.py", f"--model_dir={tmp_path}", cores=8)
    # y = 3 x - 1.
    assert output == (
        "use_tpu=False error 0.000 served -1.00 5.00\nuse_tpu=True error 0.000 served -1.00 5.00\n"
    )
