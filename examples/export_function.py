"""Export a function with its vocabulary on the host and its weights on the TPU.

    $ python examples/export_function.py /tmp/sentiment
    {serve}: a good film +1, a bad film -1, not so bad -0.5
    {serve, tpu}: a good film +1, a bad film -1, not so bad -0.5

A function with a parameter use_tpu is called once for each metagraph and chooses the parts that run
on the TPU. A function without the parameter runs on the TPU as a whole.
"""

import argparse

import numpy as np
import tensorflow as tf

import tpuserve
from tpuserve import export, loader, tags

SCORES = {"good": 1.0, "bad": -1.0, "not": 0.5}


class Sentiment(tf.Module):
    def __init__(self):
        words = tf.lookup.KeyValueTensorInitializer(
            list(SCORES), range(len(SCORES)), tf.string, tf.int64
        )
        self.vocabulary = tf.lookup.StaticVocabularyTable(words, num_oov_buckets=1)
        self.scores = tf.Variable([*SCORES.values(), 0.0])

    def __call__(self, text, use_tpu):
        ids = self.vocabulary.lookup(tf.strings.split(text))
        # A TPU needs rows of one length. The id 3 pads shorter rows; it is also the id of unknown
        # words.
        ids = ids.to_tensor(default_value=3, shape=[None, 8])
        if not use_tpu:
            return {"score": self.score(ids)}
        (score,) = export.inference_on_tpu(
            *(self.score, [ids]),
            num_batch_threads=1,
            max_batch_size=8,
            batch_timeout_micros=1000,
            allowed_batch_sizes=[1, 8],
        )
        return {"score": score}

    def score(self, ids):
        return tf.reduce_sum(tf.gather(self.scores, ids), axis=1)


def main(directory):
    signature = {"text": tf.TensorSpec([None], tf.string)}
    version = export.export(Sentiment(), signature, directory, warm_up=True)
    texts = [b"a good film", b"a bad film", b"not so bad"]
    for tag_set in (tags.SERVE, tags.SERVE_TPU):
        model = loader.load(version, tag_set)
        scores = model.run("serving_default", {"text": np.array(texts, object)})["score"]
        results = [f"{text.decode()} {s:+g}" for text, s in zip(texts, scores, strict=True)]
        print(f"{tags.format_tags(tag_set)}: {', '.join(results)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", help="the base path of the exported versions")
    with tpuserve.emulated_tpu(cores=1):
        main(parser.parse_args().directory)
