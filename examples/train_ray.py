"""Train a TPUEstimator program on two nodes of a Ray cluster.

    $ python examples/train_ray.py examples/train.py /mnt/shared/line --max_steps=60 --use_tpu

Each node runs the program in a process of its own, with the TF_CONFIG that Ray's TensorflowTrainer
sets. The program must be on every node. It trains on JAX's CPU devices.
"""

import argparse
import sys

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.tensorflow import TensorflowTrainer

import tpuserve.ray


def train(config):
    """Run the program. Each worker is a host, and the first worker is the chief."""
    command = [sys.executable, *config["program"]]
    devices = {
        "TPUSERVE_TPU_RUNTIME": "pjrt",
        "TPUSERVE_PJRT_PLATFORM": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={config['cores']}",
    }
    tpuserve.ray.run_program(command, devices)


def main(program, address, workers, cores, storage):
    ray.init(address=address)
    trainer = TensorflowTrainer(
        train,
        train_loop_config={"program": program, "cores": cores},
        scaling_config=ScalingConfig(num_workers=workers, placement_strategy="SPREAD"),
        run_config=RunConfig(storage_path=storage),
    )
    trainer.fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="the address of the cluster; default: this machine")
    parser.add_argument("--workers", type=int, default=2, help="processes of the program")
    parser.add_argument("--cores", type=int, default=1, help="CPU devices of each process")
    parser.add_argument("--storage", help="the directory of Ray's records of the run")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    arguments = parser.parse_args()
    main(
        arguments.program,
        arguments.address,
        arguments.workers,
        arguments.cores,
        arguments.storage,
    )
