"""Mutates eight modules, one change at a time, and reports the changes that no test notices.

    python -m tools.mutants [MODULE ...]

The changes are the mutations of the tool cosmic-ray. Each mutation is written into the working tree
and reverted after the tests, so the modules must have no uncommitted changes. Each mutation that no
test notices is printed as a difference: either a test is missing, or the changed code behaves the
same.
"""

import json
import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

TESTS = {
    "tpuserve/select.py": "tests/tpuserve/test_select.py",
    "tpuserve/saved_model/signature.py": "tests/tpuserve/saved_model/test_signature.py",
    "server/codec/json_to_array.py": (
        "tests/server/codec/test_json_to_array.py tests/server/codec/test_requests.py "
        "tests/server/codec/test_numeric_arrays.py tests/server/codec/test_conformance.py"
    ),
    "server/codec/requests.py": (
        "tests/server/codec/test_requests.py tests/server/codec/test_examples.py "
        "tests/server/codec/test_numeric_arrays.py tests/server/codec/test_conformance.py"
    ),
    # Without the files that import TensorFlow, which takes seconds for each mutation.
    "server/batching/scheduler.py": "tests/server/batching "
    "--ignore-glob=*_server.py --ignore=tests/server/batching/test_cancelled_runs.py",
    "server/scheduling/model_queue.py": "tests/server/scheduling",
    "server/scheduling/request_queues.py": "tests/server/scheduling",
    "trainer/distribution/topology.py": "tests/trainer/distribution/test_topology.py",
}
"""Module → the paths of the fast tests that must notice a change of it, quickest first."""

_EQUIVALENT = (
    # This operator changes annotations, such as `int | None` to `int + None`, and annotations are
    # not evaluated.
    "core/ReplaceBinaryOperator_BitOr_.*",
    # These operators write `is` for `==`, which is the same for short strings and small integers.
    "core/ReplaceComparisonOperator_Eq_Is",
    "core/ReplaceComparisonOperator_NotEq_IsNot",
    # These operators write `==` for `is`, which is the same for None and for types.
    "core/ReplaceComparisonOperator_Is_Eq",
    "core/ReplaceComparisonOperator_IsNot_NotEq",
)
"""The mutations that cannot change behaviour: regular expressions for cosmic-ray's operators."""

_EQUIVALENT_LINES = {
    # `==` is the same as `>=` here: `check_inputs` has refused requests with more inputs than the
    # signature.
    "if len(inputs) >= len(self.inputs):",
    # `<` is the same as `!=` and `is not` here: the condition before `or` covers the case `>`.
    "if len(names) > len(required) or (len(names) != len(required) and not self.defaults):",
    "if len(names) > len(required) or (len(names) is not len(required) and not self.defaults):",
    # `==` is the same as `>=` and `<=` here: "train" is the last mode in alphabetical order, and
    # "eval" the first.
    "if self.mode >= _TRAIN:",
    "if self.hosts == 1 or self.mode >= _TRAIN or self.input_mode in _WHOLE_BATCH:",
    "if has_pipeline_per_host and (self.mode <= _EVAL or self.replicas == 1):",
    # `==` is the same as `>=` here: training has been accepted before, so the mode is "eval" or
    # "infer", the value of _PREDICT.
    '" with one replica of all cores" if self.mode >= _PREDICT else ""',
    # `+` is the same as `|` and `^` here: a replica has a power of two of cores, and logical_core
    # is less.
    "core = replica * self.cores_per_replica | logical_core",
    "core = replica * self.cores_per_replica ^ logical_core",
    # `==` is the same as `>=` and `<=` here: PER_SHARD_V1 is the least constant of
    # InputPipelineConfig, and SLICED the greatest.
    "if self.tpu_config.eval_training_input_configuration >= InputPipelineConfig.SLICED:",
    "if self.tpu_config.per_host_input_for_training <= InputPipelineConfig.PER_SHARD_V1:",
    "elif self.input_mode <= InputPipelineConfig.PER_SHARD_V1:",
    # `==` is the same as `>=` here: `_check_hosts` has returned for the greater constants.
    "has_pipeline_per_host = self.input_mode >= InputPipelineConfig.PER_HOST_V2",
    # `==` is the same as `<=` for hosts, and `>` the same as `!=` for cores: `_check_cores` has
    # refused systems without hosts or cores.
    "if self.hosts <= 1 or self.mode == _TRAIN or self.input_mode in _WHOLE_BATCH:",
    "if self.is_one_core and self.system.cores != 1:",
    # `==` is the same as `<=` here: there is at least one replica.
    "if has_pipeline_per_host and (self.mode == _EVAL or self.replicas <= 1):",
    # `/` is the same as `*` here: every caller gives the value and the type by position, and
    # `explains_ragged` by name.
    "def decode_value(value: Json, dtype: str, /, explains_ragged: bool = True) -> Array:",
    # Row 0 is checked in any case.
    "start, end = 1, len(rows)",
    "return error or _check_rows(rows, 1, len(rows), dtype, key)",
    # "Array" is the first of the names of JSON's types, and no other dtype can hold objects.
    'kind = "list" if json_type_name(row) <= "Array" else "value"',
    "if array.dtype >= object:",
    # A pool has a share of at least one run.
    "running = self._running_in_shares.get(pool, -1)",
    # Any TPU is the same here, whatever its size.
    "_SOME_TPU = TpuSystem(tpu_cores= 2, hosts=1)",
    "_SOME_TPU = TpuSystem(tpu_cores=1, hosts= 2)",
    "_SOME_TPU = TpuSystem(tpu_cores=1, hosts= 0)",
    # `==` is the same as `<=` here: "input" and "output" are the only kinds.
    'do = "" if kind <= "input" else " request other outputs, or"',
    # `==` is the same as `<=` here: an empty object has no value "b64".
    'return type(value) is dict and len(value) <= 1 and type(value.get("b64")) is str',
    # `==` is the same as `>=` here: the length grows by one at each level.
    "if len(shape) >= _MAX_RANK:",
    "if level >= len(shape):",
    # `==` is the same as `>=` here: the only other type is "float32".
    'if dtype >= "float64":',
    # `!=` is the same as `>` here: the first item of the level is a list of this size.
    "if types > {list} or set(map(len, level)) != {size}:",
    "if types != {list} or set(map(len, level)) > {size}:",
    # `<` is the same as `!=` here: only items can fit.
    "if len(fitting) != len(items):",
    # All arrays have the shape of the first here.
    "if array is None or (arrays and array.shape != arrays[ -1].shape):",
    "if len(shape) + arrays[ -1].ndim > _MAX_RANK:",
    "stacked: Array = np.stack(arrays).reshape((*shape, *arrays[ -1].shape))",
    # `<` is the same as `!=` here: a pool's share is at most 1. Nothing reads the count of a pool
    # whose share is 1.
    "if ticket.pool.share != 1:",
    "if ticket.pool.share <= 1:",
    "if ticket.pool.share < 2:",
    # A pool with the whole share has its share in `_has_share` too, which counts no such pool.
    "and (pool.share > 1 or self._has_share(pool))",
    "and (pool.share >= 1 or self._has_share(pool))",
    "and (pool.share == 2 or self._has_share(pool))",
    # No virtual time is negative, and only the order of the numbers counts.
    "self._virtual_time = -1.0",
    "self._last_number = 1",
    "self._last_number = -1",
    "self._last_number += 2",
    # Nothing is later than infinity, and every name comes after the empty one.
    "return None if self._next_check >= math.inf else self._next_check",
    "if self._next_check >= math.inf:",
    "if is_idle and model > _OTHERS and self._find_limits(model) is None:",
    # Rows 0 and 1 have the same shape here, or rows 0 and 1 are among the rows.
    "decode_value([rows[ 1], *rows[start:middle]], dtype, explains_ragged=False)",
    # Other threads set the time of the next wake-up to infinity, or to an earlier time.
    "if self._next_wakeup >= next_time:",
}
"""Lines as mutations write them that behave as the lines they replace."""

_SHORTCUTS = {
    # Few numbers are converted in a quicker way, with the same result.
    "if 0 < len(leaves) < _FEW and min(leaves) > -_MAX_FLOAT32 and max(leaves) < _MAX_FLOAT32:",
    "_FEW = 64",
    "_MAX_FLOAT32 = 3.4e38",
    # An array that is the whole value is converted without a copy. Otherwise `_stack_raw_arrays`
    # copies the array, with the same result.
    "if type(value) is RawNumericArray:",
    # Arrays that fit are stacked. Otherwise they are converted as lists, with the same result.
    "array = item.to_array(dtype) if type(item) is RawNumericArray else None",
    "if array is None or (arrays and array.shape != arrays[0].shape):",
    "if len(shape) + arrays[0].ndim > _MAX_RANK:",
    # Rows are checked together where possible, and otherwise one by one.
    'if names == {"b64"} or rows[0].keys() != names:',
    "_FEW_ROWS = 16",
    # `_check_types` looks at the types again.
    "if not types <= _NUMBERS:",
    # The watcher is woken only if it would sleep too long. Once awake, it computes the time again.
    "if limit is not None and ticket.enqueued + limit < self._next_check:",
    "self._next_check = ticket.enqueued + limit",
    # A thread that wakes up without need finds no batch, and sleeps again.
    "if next_time is not None and next_time < self._next_wakeup:",
    "if next_time is None or next_time >= self._next_wakeup:",
    # The default is the longest wait for a thread that is stuck.
    "def close(self, timeout_seconds: float = 1) -> None:",
    # An error is replaced by the error of its row. The texts of errors without such a row say
    # nothing of ragged lists.
    "return decode_value(rows, dtype, explains_ragged=False)",
    "decode_value([rows[0], *rows[start:middle]], dtype, explains_ragged=False)",
    "while end - start > _FEW_ROWS:",
    # A flat list is converted without a look for nested lists.
    "if not types & _NESTED:",
}
"""Lines that choose the quicker of two ways with the same result.

A mutation of such a line that no test notices changes only the time.
"""

# The time limit of the tests of a mutation, which ends tests that hang: _EXTRA_SECONDS more than
# _TIMEOUT_RATIO times the duration of the tests without a mutation.
_EXTRA_SECONDS, _TIMEOUT_RATIO = 10, 3

_CONFIGURATION = """
[cosmic-ray]
module-path = {module}
timeout = {timeout}
excluded-modules = []
test-command = {command}

[cosmic-ray.distributor]
name = "local"

[cosmic-ray.filters.operators-filter]
exclude-operators = {equivalent}
"""


def run_mutations(module: str, tests: str, directory: Path) -> "Counter[str]":
    """Run the tests against each mutation of a module, and print the mutations that survive.

    Args:
      module: The path of the module.
      tests: The paths of the tests, of which at least one must fail.
      directory: A directory for cosmic-ray's files.

    Returns:
      Result → number of mutations: "killed", "survived", "incompetent" (the code did not run) or
      "no-test".
    """
    arguments = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    arguments += tests.split()
    start = time.monotonic()
    _run_command("python", *arguments)
    timeout = _EXTRA_SECONDS + _TIMEOUT_RATIO * (time.monotonic() - start)
    # Write the values as JSON, because JSON's strings and lists are valid TOML.
    text = _CONFIGURATION.format(
        module=json.dumps(module),
        timeout=timeout,
        command=json.dumps(shlex.join([sys.executable, *arguments])),
        equivalent=json.dumps(_EQUIVALENT),
    )
    configuration, session = directory / "cosmic-ray.toml", directory / "session.sqlite"
    configuration.write_text(text, encoding="utf-8")
    _run_command("cosmic-ray", "init", "--force", str(configuration), str(session))
    _run_command("cr-filter-operators", str(session), str(configuration))
    _run_command("cosmic-ray", "exec", str(configuration), str(session))
    counts: Counter[str] = Counter()
    for line in _run_command("cosmic-ray", "dump", str(session)).splitlines():
        _, result = json.loads(line)
        if result is None or result["worker_outcome"] == "skipped":
            continue
        outcome = result["test_outcome"] or result["worker_outcome"]
        survives = outcome == "survived"
        if _is_equivalent(result["diff"]) or (survives and _is_of_shortcut(result["diff"])):
            continue
        counts[outcome] += 1
        if survives:
            print(result["diff"], flush=True)
    return counts


def _is_of_shortcut(diff: str) -> bool:
    """Return whether a mutation changes one of `_SHORTCUTS`."""
    return any(line[:1] == "-" and line[1:].strip() in _SHORTCUTS for line in diff.splitlines())


def _is_equivalent(diff: str) -> bool:
    """Return whether a mutation is known not to change behaviour.

    An example is a mutation of the `*` in a parameter list, which cosmic-ray takes for an operator.
    """
    lines = {line[0] + line[1:].strip() for line in diff.splitlines() if line}
    return "-*," in lines or any(f"+{line}" in lines for line in _EQUIVALENT_LINES)


def _run_command(*command: str) -> str:
    program = Path(sys.executable).with_name(command[0])
    result = subprocess.run([str(program), *command[1:]], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def main() -> None:
    """Mutate the modules that the command line names, or all eight."""
    modules = sys.argv[1:] or list(TESTS)
    if unknown := [module for module in modules if module not in TESTS]:
        raise SystemExit(
            f"no tests are known for {', '.join(unknown)}. Add them to tools/mutants.py."
        )
    status = subprocess.run(
        ["git", "status", "--porcelain", "--", *modules], capture_output=True, text=True, check=True
    )
    if status.stdout:
        raise SystemExit(f"commit these changes first:\n{status.stdout}")
    for module in modules:
        with TemporaryDirectory() as directory:
            counts = run_mutations(module, TESTS[module], Path(directory))
        killed = counts.total() - counts["survived"]
        print(f"{module}: {killed} of {counts.total()} killed {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
