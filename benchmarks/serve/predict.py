"""Compares `tpuserve predict` with a bare loop over the session, and with a client of a server.

    python -m benchmarks.serve.predict [--rounds 5] [--rows 4000] [--model cnn|half_plus_two]

The rows are serialised tf.train.Example messages of a TFRecord file. Three programs predict them in
turns, each with batches of 128 rows:

    predict   the function behind `tpuserve predict`, which writes PredictionLogs
    bare      a loop that reads batches with tf.data and calls the session; it writes nothing
    rest      a client that reads with tf.data and sends the rows to `tpuserve serve` over REST,
              with four requests at a time

The benchmark prints the medians of rows/s without the load of the model, and the ratios of predict
to the others in the same round.
"""

import argparse
import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from server.process import ports
from tpuserve import tags
from tpuserve.saved_model.tfrecord import frame_record

BATCH_SIZE = 128
_CONNECTIONS = 4
_HOST = "127.0.0.1"
# The time limit of the start of the server, and of a request, in seconds.
_TIME_LIMIT = 600


def main() -> None:
    """Measure, and print medians and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--model", choices=("cnn", "half_plus_two"), default="cnn")
    arguments = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary, "model")
        save_model(base / "1", arguments.model)
        data = Path(temporary, "data.tfrecord")
        write_rows(data, arguments.rows, 784 if arguments.model == "cnn" else 1)
        rates: dict[str, list[float]] = {"predict": [], "bare": [], "rest": []}
        run = load_model(base / "1")
        with serving(base) as url:
            sides: dict[str, Callable[[], float]] = {
                "predict": lambda: measure_predict(base / "1", data, Path(temporary)),
                "bare": lambda: measure_bare(run, data),
                "rest": lambda: measure_rest(url, data),
            }
            for side in sides.values():
                side()  # Discard the first figures: this run fills caches.
            for number in range(arguments.rounds):
                names = list(sides)
                for name in names[number % 3 :] + names[: number % 3]:
                    rates[name].append(arguments.rows / sides[name]())
        print_report(arguments.model, arguments.rows, rates)


def save_model(directory: Path, name: str) -> None:
    """Export a model whose input is a vector of serialised examples with the feature x.

    Args:
      directory: The directory of the SavedModel.
      name: "cnn" for two convolutions and two dense layers on 28x28 pixels, or "half_plus_two" for
        y = x / 2 + 2.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        examples = v1.placeholder(tf.string, [None], name="examples")
        size = 784 if name == "cnn" else 1
        x = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([size], tf.float32)})["x"]
        if name == "cnn":
            x = tf.reshape(x, [-1, 28, 28, 1])
            for filters in (32, 64):
                kernel = v1.get_variable(f"kernel_{filters}", [5, 5, x.shape[-1], filters])
                x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME")), 2, 2, "SAME")
            x = tf.reshape(x, [-1, 7 * 7 * 64])
            x = tf.nn.relu(x @ v1.get_variable("hidden", [7 * 7 * 64, 128]))
            y = x @ v1.get_variable("logits", [128, 10])
        else:
            y = v1.get_variable("a", initializer=0.5) * x + v1.get_variable("b", initializer=2.0)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(directory), {"examples": examples}, {"y": y})


def write_rows(path: Path, rows: int, size: int) -> None:
    """Write a TFRecord file of examples with `size` random numbers."""
    import tensorflow as tf

    random = np.random.default_rng(1)
    with open(path, "wb") as file:
        for _ in range(rows):
            values = tf.train.FloatList(value=random.random(size, np.float32))
            features = tf.train.Features(feature={"x": tf.train.Feature(float_list=values)})
            example = tf.train.Example(features=features)
            file.write(frame_record(example.SerializeToString()))


def load_model(directory: Path) -> Any:
    """Load a model into a plain session; return its callable, examples → y."""
    import tensorflow as tf

    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        session = v1.Session(graph=graph)
        meta_graph = v1.saved_model.load(session, sorted(tags.SERVE), str(directory))
        signature = meta_graph.signature_def["serving_default"]
        return session.make_callable(
            signature.outputs["y"].name, [signature.inputs["examples"].name]
        )


@contextmanager
def serving(base: Path) -> Iterator[str]:
    """Serve a model; yield the URL of predict."""
    reserved = [ports.bind_port(_HOST, 0, "--port") for _ in range(2)]
    rest, rpc = (int(port.getsockname()[1]) for port in reserved)
    for port in reserved:
        port.close()
    command = [sys.executable, "-m", "tpuserve", "serve", f"--model_base_path={base}"]
    flags = ["--model_name=model", f"--host={_HOST}", f"--rest_api_port={rest}", f"--port={rpc}"]
    process = subprocess.Popen([*command, *flags], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _TIME_LIMIT
        while not _is_ready(f"http://{_HOST}:{rest}/readyz"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: status {process.returncode}")
            time.sleep(0.1)
        yield f"http://{_HOST}:{rest}/v1/models/model:predict"
    finally:
        process.kill()
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=_TIME_LIMIT, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def measure_predict(directory: Path, data: Path, temporary: Path) -> float:
    """Return the seconds of `tpuserve predict`."""
    from tpuserve.prediction.batch_prediction import predict

    with tempfile.TemporaryDirectory(dir=temporary) as outputs:
        return predict(directory, [str(data)], Path(outputs), batch_size=BATCH_SIZE).seconds


def _batches(data: Path) -> Iterator[Any]:
    import tensorflow as tf

    dataset = tf.data.TFRecordDataset(str(data)).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    yield from dataset.as_numpy_iterator()


def measure_bare(run_model: Callable[[Any], Any], data: Path) -> float:
    """Return the seconds of a loop that reads batches and runs them."""
    begin = time.perf_counter()
    for batch in _batches(data):
        run_model(batch)
    return time.perf_counter() - begin


def measure_rest(url: str, data: Path) -> float:
    """Return the seconds of a client that sends all rows and parses the responses."""

    def send(batch: Any) -> None:
        instances = [{"b64": base64.b64encode(example).decode()} for example in batch]
        body = json.dumps({"instances": instances})
        response = client.post(url, content=body)
        response.raise_for_status()
        assert len(response.json()["predictions"]) == len(batch)

    begin = time.perf_counter()
    with (
        httpx.Client(timeout=_TIME_LIMIT, trust_env=False) as client,
        ThreadPoolExecutor(_CONNECTIONS) as executor,
    ):
        for _ in executor.map(send, _batches(data)):
            pass
    return time.perf_counter() - begin


def print_report(model: str, rows: int, rates: dict[str, list[float]]) -> None:
    """Print the rows/s of each side, and the ratios of predict to the others."""
    print(f"{model}, {rows} rows (load average {os.getloadavg()[0]:.1f})")
    for name, figures in rates.items():
        line = f"  {name:8} {statistics.median(figures):8.0f} rows/s"
        if name != "predict":
            line += f", predict / {name} {_spread(rates['predict'], figures)}"
        print(line)


def _spread(figures: Sequence[float], others: Sequence[float]) -> str:
    ratios = [figure / other for figure, other in zip(figures, others, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
