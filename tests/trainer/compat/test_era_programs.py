import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer import exports
from tests.trainer.compat import era, irises, moods, pictures

pytestmark = pytest.mark.slow

# Without a TPU, and on an emulated one.
either_way = pytest.mark.parametrize("cores", [0, 8])


@either_way
@pytest.mark.numeric
def test_bert_like_classifier_trains_evaluates_predicts_and_exports(
    cores: int, tmp_path: Path
) -> None:
    data = moods.write(tmp_path / "data")
    table = np.full([len(moods.PIECES), moods.HIDDEN], 0.5, np.float32)
    table[:, ::2] = np.random.default_rng(0).normal(size=[len(moods.PIECES), moods.HIDDEN // 2])
    start = era.write_checkpoint(tmp_path / "start", {"bert/embeddings/word_embeddings": table})
    output = tmp_path / "model"
    era.run(
        "bert_like/run_classifier.py",
        *data.flags,
        *("--do_train", "--do_eval", "--do_predict", f"--export_dir={output / 'export'}"),
        *(f"--output_dir={output}", f"--init_checkpoint={start}", f"--use_tpu={bool(cores)}"),
        *("--learning_rate=0.005", "--num_train_epochs=15", "--iterations_per_loop=10"),
        *("--tpu_name=local",) * bool(cores),
        cores=cores,
    )

    # Nothing but the decay of weights has touched a piece that no sentence has.
    trained = tf.train.load_variable(str(output), "bert/embeddings/word_embeddings")
    np.testing.assert_allclose(trained[moods.UNUSED], table[moods.UNUSED], rtol=5e-3)

    probabilities = np.loadtxt(output / "test_results.tsv")
    assert probabilities.shape == (13, 2)
    chosen = probabilities[np.arange(13), data.dev_labels]
    results = dict(
        line.split(" = ") for line in (output / "eval_results.txt").read_text().splitlines()
    )
    # Of the real rows only: 16 rows are evaluated on a TPU.
    accuracy = np.mean(chosen > 0.5)
    assert float(results["eval_accuracy"]) == pytest.approx(accuracy)
    assert float(results["eval_loss"]) == pytest.approx(-np.log(chosen).mean(), rel=1e-3)
    assert accuracy > 0.75
    assert results["global_step"] == "60"

    inputs = moods.read_records(output / "predict.tf_record")
    served = exports.answers(era.export_in(output / "export"), inputs)
    np.testing.assert_allclose(served["probabilities"][:13], probabilities, rtol=1e-3, atol=1e-5)


@either_way
@pytest.mark.numeric
def test_resnet_like_trains_and_evaluates_its_checkpoints_in_turn(
    cores: int, tmp_path: Path
) -> None:
    pictures.write(tmp_path / "data")
    model = tmp_path / "model"
    said = era.run(
        "resnet_like.py",
        *(f"--data_dir={tmp_path / 'data'}", f"--model_dir={model}", f"--use_tpu={bool(cores)}"),
        f"--precision={'bfloat16' if cores else 'float32'}",
        # 8 rows a core: with half as many, what a core normalizes by says little of a batch.
        *("--train_batch_size=64", "--num_train_images=128"),
        "--hparams=base_learning_rate=0.05,momentum=0.8,filters=[8]",
        cores=cores,
    )

    evaluated = era.scalars(model / "eval")
    assert sorted(evaluated["top_1_accuracy"]) == [12, 24]
    assert evaluated["top_1_accuracy"][24] > 0.7
    assert evaluated["top_5_accuracy"][24] >= evaluated["top_1_accuracy"][24]
    shown = re.search(r"^step 24: top_1 (\S+) top_5 (\S+)", said, re.MULTILINE)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(evaluated["top_1_accuracy"][24], abs=1e-4)

    seen = era.scalars(model)
    # Half of the pictures a step.
    assert seen["current_epoch"][23] == 11.5
    # Twice the base, for twice 32 rows, from epoch 2 on, and a hundredth of it from epoch 11.
    assert seen["learning_rate"][5] == pytest.approx(0.1)
    assert seen["learning_rate"][23] == pytest.approx(0.001)
    losses = [loss for _, loss in sorted(seen["host_loss"].items())]
    assert losses[-1] < losses[0] - 0.5

    mean = tf.train.load_variable(str(model), "resnet/batch_normalization/moving_mean")
    assert np.abs(mean).max() > 0.01
    images = {"input": np.full([2, 8, 8, 3], 0.25, np.float32)}
    served = exports.answers(era.export_in(model / "export"), images)
    np.testing.assert_allclose(served["probabilities"].sum(axis=1), 1, rtol=1e-3)


@either_way
def test_electra_like_pretrains_under_a_hook_of_its_own(cores: int, tmp_path: Path) -> None:
    sentence = "{} {} {} {} it\n"
    words = (("the", "a"), ("small", "big"), ("cat", "dog"), ("eats", "sees"))
    (tmp_path / "corpus.txt").write_text(
        "".join(
            sentence.format(*(pair[number >> bit & 1] for bit, pair in enumerate(words)))
            for number in range(64)
        )
    )
    sizes = {"num_train_steps": 120, "save_checkpoints_steps": 60, "num_eval_steps": 8}
    said = era.run(
        "electra_like.py",
        *("--data-dir", tmp_path, "--model-name", "tiny"),
        *("--hparams", json.dumps({"use_tpu": bool(cores), **sizes})),
        cores=cores,
    )

    shown = re.findall(r"^\d+/120 = .*ETA: \d+s(?:, loss: (\S+))?$", said, re.MULTILINE)
    assert len(shown) == 12
    assert said.endswith("trained until step 120\n")
    if not cores:
        assert float(shown[-1]) < float(shown[0]) - 1
    results = json.loads((tmp_path / "models/tiny/results.json").read_text())
    assert results["global_step"] == 120
    # Without learning they are ln 16 = 2.8 and ln 2 = 0.7. Which words are hidden is chance: few
    # steps, and few rows, would come near to the limits now and then.
    assert results["masked_lm_loss"] < 1.8
    assert results["disc_loss"] < 0.5
    # Two words in seven are hidden, and not all of them come back as others.
    assert results["disc_accuracy"] > 5 / 7


@either_way
def test_iris_by_feature_columns_is_learnt_by_both_estimators(cores: int, tmp_path: Path) -> None:
    irises.write(tmp_path)
    said = era.run(
        "iris_columns.py",
        *("--data_dir", tmp_path, "--model_dir", tmp_path / "model"),
        *("--use_tpu",) * bool(cores),
        cores=cores,
    )

    accuracies = re.findall(r"^(\w+): accuracy (\S+)$", said, re.MULTILINE)
    assert [name for name, _ in accuracies] == ["Estimator", "TPUEstimator"]
    assert all(float(accuracy) > 0.9 for _, accuracy in accuracies)
    predictions = re.findall(r"^Prediction is (\w+), expected (\w+)$", said, re.MULTILINE)
    assert len(predictions) == 3
    assert all(found == expected for found, expected in predictions)

    measures = zip(irises.MEASURES, ([5.0], [3.4], [1.5], [0.2]), strict=True)
    asked = era.example({**dict(measures), "Garden": b"west"})
    served = exports.answers(era.export_in(tmp_path / "model/tpu_estimator_export"), asked)
    assert served["class_ids"].tolist() == [0]
    plain = era.answer(era.export_in(tmp_path / "model/estimator_export"), asked)
    assert plain["class_ids"].tolist() == [[0]]


def test_gan_like_trains_by_two_optimizers_and_draws_on_the_host(tmp_path: Path) -> None:
    steps = ("--train_steps=16", "--train_steps_per_eval=8")
    said = era.run("gan_like.py", f"--model_dir={tmp_path}", *steps, cores=8)

    assert re.findall(r"^(?:starts|ends) at \d+$", said, re.MULTILINE) == [
        "starts at 0",
        "ends at 16",
    ]
    shown = re.findall(r"^step (\d+): real (\S+) made (\S+)$", said, re.MULTILINE)
    assert [step for step, _, _ in shown] == ["8", "16"]
    real, made = map(float, shown[-1][1:])
    assert real > made
    samples = np.loadtxt(tmp_path / "samples/16.txt")
    assert samples.shape == (20, 64)
    assert np.abs(samples).max() <= 1
    # Its own saver keeps one, and summaries are of every step.
    assert [each.name for each in tmp_path.glob("*.index")] == ["model.ckpt-16.index"]
    assert sorted(era.scalars(tmp_path)["critic_loss"]) == list(range(16))


def test_gpt_like_learns_by_its_own_optimizer_and_decodes_in_a_loop(tmp_path: Path) -> None:
    sizes = {"n_embd": 16, "n_ctx": 10, "n_vocab": 8, "n_layer": 2, "n_head": 2, "accumulate": 2}
    params = json.dumps({"model_path": str(tmp_path), **sizes})
    said = era.run("gpt_like.py", "--tpu", "local", "--params", params, cores=8)

    # Without learning it is 8.
    perplexity, *rows = said.splitlines()
    assert float(perplexity.removeprefix("perplexity ")) < 2
    counted = [[int(each) for each in row.split()] for row in rows]
    assert counted == [[(first + place) % 5 for place in range(10)] for first in range(10)]


def test_a_program_of_tensorflow_2_stays_one(tmp_path: Path) -> None:
    said = era.run("plain_estimator.py", tmp_path, "--tpu", "both", cores=8)
    found = re.findall(r"^(\w+) at step 100: accuracy (\S+)$", said, re.MULTILINE)
    assert [name for name, _ in found] == ["estimator", "no_tpu", "tpu"]
    assert all(float(accuracy) > 0.9 for _, accuracy in found)
    # A quarter past is in the first third of the hour.
    exported = era.export_in(tmp_path / "estimator/export/latest")
    assert era.answer(exported, era.example({"point": [1.0, 0.0]}))["third"].tolist() == [0]


def test_a_program_whose_first_line_asks_for_the_names_needs_no_command(tmp_path: Path) -> None:
    said = era.run_by_python("first_line.py", f"--model_dir={tmp_path}", cores=8)
    # y = 3 x - 1.
    assert said == (
        "use_tpu=False error 0.000 served -1.00 5.00\nuse_tpu=True error 0.000 served -1.00 5.00\n"
    )
