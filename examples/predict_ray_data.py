"""Predict the tf.train.Examples of TFRecord files with Ray Data.

    $ python examples/predict_ray_data.py /models/line/1 'data-*.tfrecord' out

It writes Parquet files with the features and the outputs of each example to the directory "out".
"""

import argparse
import glob

import ray

import tpuserve.ray


def main(model, data, out, address, workers):
    ray.init(address=address)
    examples = ray.data.read_tfrecords(sorted(glob.glob(data)))
    predictions = examples.map_batches(
        tpuserve.ray.Predict,
        fn_constructor_args=(model,),
        batch_size=128,
        concurrency=workers,
    )
    predictions.write_parquet(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="the directory of the SavedModel, on every node")
    parser.add_argument("data", help="the pattern of the TFRecord files")
    parser.add_argument("out", help="the directory of the Parquet files")
    parser.add_argument("--address", help="the address of the cluster; default: this machine")
    parser.add_argument("--workers", type=int, default=2, help="processes with the model")
    arguments = parser.parse_args()
    main(arguments.model, arguments.data, arguments.out, arguments.address, arguments.workers)
