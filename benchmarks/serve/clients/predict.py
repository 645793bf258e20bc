"""Compares `tpuserve predict` with a bare loop over the session, and with clients of a server.

    python -m benchmarks.serve.clients.predict [--rounds 5] [--rows 4000]
      [--model cnn|half_plus_two]

The rows are serialised tf.train.Example messages of a TFRecord file. These programs predict them in
turns, with batches of 128 rows:

    predict   the function behind `tpuserve predict`, which writes PredictionLogs
    bare      a loop that reads batches with tf.data and calls the session; it writes nothing
    examples  a client that sends a batch of serialised examples, as base64, in each request
    numbers   a client that parses the examples with tf.data, and sends a batch of numbers in each
              request, as TensorFlow Serving's tutorial does
    rows      a client that sends one row as numbers in each request, as the example clients of
              TensorFlow Serving do

The clients write nothing. They call the REST API of `tpuserve serve`, which stands in for that of
TensorFlow Serving, with four requests at a time. The benchmark prints the medians of rows/s, of
rows for each second of the processors, and of the ratios of predict to the others in the same
round. Neither the load of the model nor the start of the server counts. The processor time of a
client includes that of the server. Where other programs use the machine, ratios of processor time
vary less.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.serve import turns
from tests.processes import free_ports
from tpuserve import tags
from tpuserve.saved_model.tfrecord import frame_record

BATCH_SIZE = 128
_CONNECTIONS = 4
_HOST = "127.0.0.1"
# The time limit of the start of the server, and of a request, in seconds.
_TIME_LIMIT = 600


@dataclass(frozen=True)
class Cost:
    """The time that the prediction of all rows takes.

    Attributes:
      seconds: the elapsed time.
      cpu_seconds: the sum of the CPU time of all processors.
    """

    seconds: float
    cpu_seconds: float


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
    size = 784 if arguments.model == "cnn" else 1
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary, "model")
        save_model(base / "1", arguments.model, size)
        data, no_data = Path(temporary, "data.tfrecord"), Path(temporary, "empty.tfrecord")
        write_rows(data, arguments.rows, size)
        no_data.touch()
        run = load_model(base / "1")
        with serving(base) as (url, pid):
            sides: dict[str, Callable[[], Cost]] = {
                "predict": lambda: measure_predict(base / "1", data, no_data, Path(temporary)),
                "bare": lambda: measure_bare(run, data),
                "examples": lambda: measure_rest(url, pid, data, encode_examples),
                "numbers": lambda: measure_rest(url, pid, data, encode_numbers, size),
                "rows": lambda: measure_rest(url, pid, data, encode_numbers, size, batch_size=1),
            }
            costs: dict[str, list[Cost]] = {name: [] for name in sides}
            for side in sides.values():
                side()  # Discard the first figures: this run fills caches.
            for number in range(arguments.rounds):
                names = list(sides)
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    costs[name].append(sides[name]())
        print_report(arguments.model, arguments.rows, costs)


def save_model(directory: Path, name: str, size: int) -> None:
    """Export a model with two signatures.

    The input of serving_default is a vector of serialised examples with the feature x. The input of
    the signature "numbers" is x, [rows, size].

    Args:
      directory: The directory of the SavedModel.
      name: "cnn" for two convolutions and two dense layers on 28x28 pixels, or "half_plus_two" for
        y = x / 2 + 2.
      size: The numbers of a row.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        examples = v1.placeholder(tf.string, [None], name="examples")
        numbers = parse_feature(examples, size)
        x = numbers
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
        info = v1.saved_model.build_tensor_info
        builder = v1.saved_model.Builder(str(directory))
        builder.add_meta_graph_and_variables(
            session,
            [v1.saved_model.tag_constants.SERVING],
            {
                signature_name: v1.saved_model.build_signature_def(
                    {alias: info(tensor)}, {"y": info(y)}, "tensorflow/serving/predict"
                )
                for signature_name, alias, tensor in (
                    ("serving_default", "examples", examples),
                    ("numbers", "x", numbers),
                )
            },
        )
        builder.save()


def parse_feature(examples: Any, size: int) -> Any:
    """Return the feature x of serialised examples: a tensor [rows, size]."""
    import tensorflow as tf

    return tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([size], tf.float32)})["x"]


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
def serving(base: Path) -> Iterator[tuple[str, int]]:
    """Serve a model; yield the URL of predict and the id of the server's process."""
    rest, rpc = free_ports(2)
    command = [sys.executable, "-m", "tpuserve", "serve", f"--model_base_path={base}"]
    flags = ["--model_name=model", f"--host={_HOST}", f"--rest_api_port={rest}", f"--port={rpc}"]
    process = subprocess.Popen([*command, *flags], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _TIME_LIMIT
        while not _is_ready(f"http://{_HOST}:{rest}/readyz"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: status {process.returncode}")
            time.sleep(0.1)
        yield f"http://{_HOST}:{rest}/v1/models/model:predict", process.pid
    finally:
        process.kill()
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=_TIME_LIMIT, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def measure_predict(directory: Path, data: Path, no_data: Path, temporary: Path) -> Cost:
    """Return the cost of `tpuserve predict`, without that of an empty file: the load."""
    load, whole = (_run_predict(directory, path, temporary) for path in (no_data, data))
    return Cost(whole.seconds, whole.cpu_seconds - load.cpu_seconds)


def _run_predict(directory: Path, data: Path, temporary: Path) -> Cost:
    """Return the time without the load of the model, and the processor time with the load."""
    from tpuserve.prediction.batch_prediction import predict

    begin = time.process_time()
    with tempfile.TemporaryDirectory(dir=temporary) as outputs:
        report = predict(directory, [str(data)], Path(outputs), batch_size=BATCH_SIZE)
    return Cost(report.seconds, time.process_time() - begin)


def _batches(data: Path, size: int | None = None, batch_size: int = BATCH_SIZE) -> Iterator[Any]:
    """Yield batches of serialised examples, or of the `size` numbers of the feature x."""
    import tensorflow as tf

    dataset = tf.data.TFRecordDataset(str(data)).batch(batch_size)
    if size is not None:
        dataset = dataset.map(lambda examples: parse_feature(examples, size), tf.data.AUTOTUNE)
    yield from dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def measure_bare(run_model: Callable[[Any], Any], data: Path) -> Cost:
    """Return the cost of a loop that reads batches and runs them."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    for batch in _batches(data):
        run_model(batch)
    return Cost(time.perf_counter() - begin, time.process_time() - cpu_begin)


def encode_examples(batch: Any) -> str:
    """Return the body of a request with serialised examples."""
    return json.dumps(
        {"instances": [{"b64": base64.b64encode(example).decode()} for example in batch]}
    )


def encode_numbers(batch: Any) -> str:
    """Return the body of a request with an array of numbers."""
    return json.dumps({"signature_name": "numbers", "instances": batch.tolist()})


def measure_rest(
    url: str,
    pid: int,
    data: Path,
    encode: Callable[[Any], str],
    size: int | None = None,
    batch_size: int = BATCH_SIZE,
) -> Cost:
    """Return the cost of a client that sends all rows and parses the responses, and of its server.

    Args:
      url: The URL of predict.
      pid: The process of the server.
      data: The rows.
      encode: Returns the body of the request for a batch.
      size: The numbers of a row; None leaves the rows serialised.
      batch_size: The rows of a request.
    """

    def send(batch: Any) -> None:
        response = client.post(url, content=encode(batch))
        response.raise_for_status()
        assert len(response.json()["predictions"]) == len(batch)

    begin = time.perf_counter()
    cpu_begin = time.process_time() + turns.cpu_seconds(pid)
    with (
        httpx.Client(timeout=_TIME_LIMIT, trust_env=False) as client,
        ThreadPoolExecutor(_CONNECTIONS) as executor,
    ):
        for _ in executor.map(send, _batches(data, size, batch_size)):
            pass
    cpu_seconds = time.process_time() + turns.cpu_seconds(pid) - cpu_begin
    return Cost(time.perf_counter() - begin, cpu_seconds)


def print_report(model: str, rows: int, costs: dict[str, list[Cost]]) -> None:
    """Print the rows of each side for a second, and the ratios of predict to the others."""
    print(f"{model}, {rows} rows (load average {os.getloadavg()[0]:.1f})")
    for unit, attribute in (("rows/s", "seconds"), ("rows/s of processors", "cpu_seconds")):
        rates = {
            name: [rows / getattr(cost, attribute) for cost in figures]
            for name, figures in costs.items()
        }
        for name, figures in rates.items():
            line = f"  {name:8} {statistics.median(figures):8.0f} {unit}"
            if name != "predict":
                line += f", predict / {name} {_spread(rates['predict'], figures)}"
            print(line)


def _spread(figures: Sequence[float], others: Sequence[float]) -> str:
    ratios = [figure / other for figure, other in zip(figures, others, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
