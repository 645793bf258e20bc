"""Predict the tf.train.Examples of a TFRecord file in a pipeline of Apache Beam.

    $ python examples/predict_beam.py /models/line/1 data.tfrecord out

It writes PredictionLogs to TFRecord files whose names begin with "out".
"""

import argparse

import apache_beam as beam

from tpuserve.beam import InferenceSpecType, RunInference, SavedModelSpec


def main(model, data, out):
    spec = InferenceSpecType(SavedModelSpec(model))
    with beam.Pipeline() as pipeline:
        (
            pipeline
            | beam.io.ReadFromTFRecord(data)
            | RunInference(spec)
            | beam.Map(lambda log: log.SerializeToString())
            | beam.io.WriteToTFRecord(out)
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="the directory of the SavedModel")
    parser.add_argument("data", help="the TFRecord file")
    parser.add_argument("out", help="the beginning of the names of the output files")
    arguments = parser.parse_args()
    main(arguments.model, arguments.data, arguments.out)
