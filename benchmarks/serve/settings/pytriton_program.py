"""Serves the CNN of `benchmarks.serve.models` with nvidia-pytriton and its dynamic batcher.

    ENVIRONMENT/bin/python -P benchmarks/serve/settings/pytriton_program.py MODEL HTTP_PORT
      GRPC_PORT

Runs in the environment of pytriton, and so imports nothing of this project. MODEL is the directory
of a SavedModel. The program prints "ready" when the server answers, and serves until its input
ends.
"""

import os
import sys

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from pytriton.decorators import batch  # type: ignore[import-not-found]
from pytriton.model_config import (  # type: ignore[import-not-found]
    DynamicBatcher,
    ModelConfig,
    Tensor,
)
from pytriton.triton import Triton, TritonConfig  # type: ignore[import-not-found]


def main() -> None:
    """Serve until standard input ends."""
    directory, http_port, grpc_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Run the graph in a session callable, as tpuserve does. It is faster than the SavedModel's
    # signature function.
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], directory)
        signature = meta_graph.signature_def["serving_default"]
        run = session.make_callable(signature.outputs["y"].name, [signature.inputs["x"].name])

    @batch  # type: ignore[untyped-decorator]
    def infer(x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": run(x)}

    config = TritonConfig(
        http_port=http_port, grpc_port=grpc_port, allow_metrics=False, log_verbose=0
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name="mnist",
            infer_func=infer,
            inputs=[Tensor(name="x", dtype=np.float32, shape=(28, 28, 1))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(10,))],
            config=ModelConfig(max_batch_size=64, batcher=DynamicBatcher()),
        )
        triton.run()
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
