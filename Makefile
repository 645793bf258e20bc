# `make demo` and `make test` set up .venv by themselves; nothing else has to be installed first.

PYTHON ?= python3
BIN := .venv/bin
# A registry that is slow for a minute is no reason to fail.
PIP_FLAGS := --quiet --disable-pip-version-check --retries 10 --timeout 180
# One process more than the machine of CI has cores, because many tests wait for other processes. A
# file stays in one process, for its fixtures.
PYTEST_FLAGS = -n $(or $(JOBS),3) --dist loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=10
# What depends on the versions of others most: the protocols' libraries, TensorFlow's loader and ops.
VERSION_TESTS := tests/server/frontends tests/tpuserve/export/conversion tests/tpuserve/runtime \
  tests/tpuserve/untrusted
# Old releases of TensorFlow and of what it imports warn of each other.
OLD_WARNINGS := -W default::DeprecationWarning -W default::UserWarning
# TensorFlow 2.20 prints more than the documents show; old clients of the Hub ask what its stand-in in
# the tests does not answer; and old messages of TensorFlow Serving for Python are no longer read.
NOT_LOWEST := --ignore=tests/documents --ignore=tests/tpuserve/test_proto.py -k "not hf and not without_a_repository"
# With PRE=1, test-latest takes pre-releases, and a TensorFlow that the requirements of tpuserve and
# tf-keras do not allow yet. keras-nightly, which that one requires, would overwrite keras.
# tpuserve doctor rightly says that it was not tested.
PRE_RELEASES := $(if $(PRE),--prerelease=allow --override .venv-latest/overrides.txt)
NOT_PRE := $(if $(PRE),--ignore=tests/tpuserve/diagnosis --ignore=tests/tpuserve/commands/test_doctor.py)
# The lowest Python that the project supports, or the lowest that there is.
PYTHONS := python3.11 $(wildcard $(HOME)/.pyenv/versions/3.11*/bin/python3.11) $(PYTHON)
LOWEST_PYTHON = $(firstword $(foreach python,$(PYTHONS),$(shell $(python) -c "" 2>&- && echo $(python))))
# Images of containers often forbid Python to write what it compiles. Then every process that a test
# starts would compile our modules again.
export PYTHONDONTWRITEBYTECODE :=
.DEFAULT_GOAL := help

.PHONY: help demo test test-generations test-slow test-all test-nightly test-changed test-other-processors test-lowest test-latest test-wheel test-image test-clusters test-fuzz test-gpu mutants check lint types format dev bench-train bench-serve bench-pjrt bench-convert zoo protos clean

help:  ## Show what there is to make.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 24

demo: .venv/demo.stamp  ## Train, export and serve real digits; about a minute and a half.
	$(BIN)/tpuserve demo

test: .venv/dev.stamp  ## Run the quick tests: each room, and one proof of each promise.
	$(BIN)/pytest $(PYTEST_FLAGS)

test-all: test test-slow  ## Run all that any machine can run.

test-slow: .venv/dev.stamp .venv-clients/stamp .venv-perf/stamp test-clusters  ## Run what test-all adds to test.
	$(BIN)/pytest $(PYTEST_FLAGS) -m "slow and not nightly"

test-nightly: test-lowest test-latest test-other-processors test-generations test-fuzz zoo mutants test-image test-gpu  ## Run what depends on other versions and machines, or takes long.
	$(BIN)/pytest -m nightly tests/test_gpu_check.py

test-changed: .venv/dev.stamp  ## Run the tests of the rooms that differ from BASE (origin/main).
	$(BIN)/python -m tools.changed_tests $(or $(BASE),origin/main) | xargs --no-run-if-empty $(BIN)/pytest $(PYTEST_FLAGS) -m "not nightly"

test-other-processors: .venv/dev.stamp  ## Run the numeric tests as other processors would.
	$(BIN)/python -m tools.other_processors

test-lowest: .venv-lowest/stamp  ## Run the tests with the lowest versions of all dependencies.
	.venv-lowest/bin/pytest $(PYTEST_FLAGS) $(OLD_WARNINGS) $(NOT_LOWEST)
	.venv-lowest/bin/pytest $(PYTEST_FLAGS) $(OLD_WARNINGS) -m "slow and not nightly" $(VERSION_TESTS)

test-wheel: .venv/dev.stamp  ## Build the wheel, install it in an empty environment, and ask the sample model.
	$(BIN)/python -m tools.check_wheel --constraint constraints.txt

test-image:  ## Build the image in a chroot and ask it; needs root, debootstrap, podman and buildah.
	tools/check_image.sh

test-latest: .venv-latest/stamp  ## Run the tests with the newest versions, with PRE=1 also of pre-releases.
	.venv-latest/bin/pytest $(PYTEST_FLAGS) $(NOT_PRE)
	.venv-latest/bin/pytest $(PYTEST_FLAGS) -m "slow and not nightly" $(VERSION_TESTS)

test-generations: .venv/dev.stamp  ## Compile all kinds of exports for all seven generations of TPUs.
	$(BIN)/pytest -m nightly tests/conformance

test-fuzz: .venv/dev.stamp  ## Send a hundred times as many random requests and files as test-all, and feed kernels.
	TPUSERVE_FUZZ=5000 TPUSERVE_FUZZ_MESSAGES=1500 TPUSERVE_SCHEMATHESIS=500 $(BIN)/pytest $(PYTEST_FLAGS) -m "" $$(git ls-files 'tests/**/test_*fuzz*.py' 'tests/**/test_schemathesis.py')
	$(BIN)/python -m tools.fuzz_kernels --seed $$(date +%j)

# Ray's own code calls deprecated functions of pydantic.
test-clusters: .venv-clusters/stamp  ## Run the tests of Beam and Ray, on local runners and clusters.
	.venv-clusters/bin/python -m pytest -W ignore -m slow --durations=10 tests/clusters

# Without a GPU nothing is installed, and the status is 0.
test-gpu:  ## Train and serve on an NVIDIA GPU, with TensorFlow and through PJRT, in eight minutes.
	@if $(PYTHON) tools/gpu_check.py --find; then \
	  $(MAKE) .venv-gpu/stamp && .venv-gpu/bin/python -m tools.gpu_check; fi

mutants: .venv/dev.stamp  ## Change eight modules in small ways, and report what no test notices.
	$(BIN)/python -m tools.mutants $(ARGS)

check: lint types test-all  ## Run lint, types and the tests of CI.

lint: .venv/dev.stamp  ## Look for mistakes, unformatted code and imports that run upwards.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: .venv/dev.stamp  ## Check the types.
	$(BIN)/mypy

format: .venv/dev.stamp  ## Format the code and mend what can be mended.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

dev: .venv/dev.stamp  ## Set up .venv for work on the code.

bench-train: .venv/dev.stamp  ## Measure training against TensorFlow's own TPUEstimator.
	$(BIN)/python -m benchmarks.train $(ARGS)

bench-serve: .venv/dev.stamp .venv-perf/stamp  ## Measure the server against bare echoes and plain JSON; needs h2load.
	$(BIN)/python -m benchmarks.serve.protocols.json_codec
	$(BIN)/python -m benchmarks.serve.protocols.open_inference
	$(BIN)/python -m benchmarks.serve.protocols.rest
	$(BIN)/python -m benchmarks.serve.protocols.rpc
	$(BIN)/python -m benchmarks.serve.protocols.grpc_executor
	$(BIN)/python -m benchmarks.serve.attacks.grpc_attacks
	$(BIN)/python -m benchmarks.serve.lifecycle.swap
	$(BIN)/python -m benchmarks.serve.lifecycle.start
	$(BIN)/python -m benchmarks.serve.lifecycle.memory
	$(BIN)/python -m benchmarks.serve.lifecycle.allocation
	$(BIN)/python -m benchmarks.serve.settings.processes
	$(BIN)/python -m benchmarks.serve.attacks.parse_cost
	$(BIN)/python -m benchmarks.serve.attacks.probes
	$(BIN)/python -m benchmarks.serve.attacks.neighbours
	$(BIN)/python -m benchmarks.serve.settings.batching
	$(BIN)/python -m benchmarks.serve.clients.client
	$(BIN)/python -m benchmarks.serve.clients.perf_analyzer
	$(BIN)/python -m benchmarks.serve.settings.console
	$(BIN)/python -m benchmarks.serve.settings.tracing
	$(BIN)/python -m benchmarks.serve.clients.predict

bench-pjrt: .venv/dev.stamp  ## Measure serving and training through PJRT against TensorFlow and the emulated TPU.
	$(BIN)/python -m benchmarks.pjrt.serving $(ARGS)
	$(BIN)/python -m benchmarks.pjrt.training $(TRAINING_ARGS)

bench-convert: .venv/dev.stamp  ## Measure the conversion of SavedModels by size, against copying.
	$(BIN)/python -m benchmarks.export.convert $(ARGS)

# The packages bring old pins of TensorFlow, so only their files are installed.
zoo: .venv/dev.stamp  ## Convert, verify, compile and serve 29 models of others; writes docs/zoo.md.
	$(BIN)/pip install $(PIP_FLAGS) --no-deps "basic-pitch==0.4.0" "guesslang==2.2.1"
	TPUSERVE_ZOO=$(or $(ARGS),all) $(BIN)/pytest -m nightly tests/zoo

# A compiler of its own environment: its protobuf is older than the one that users get.
protos:  ## Compile the .proto files of tpuserve and server.
	test -x .venv-protos/bin/python || $(PYTHON) -m venv .venv-protos
	.venv-protos/bin/pip install --quiet "grpcio-tools==1.75.1"
	.venv-protos/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	  $(filter-out %/open_inference.proto,$(wildcard tpuserve/proto/*.proto)) \
	  server/proto/serialized_input.proto
	cd server/proto && ../../.venv-protos/bin/python -m grpc_tools.protoc -I. --include_imports \
	  --descriptor_set_out=model_server.binpb model_server.proto
	cd tpuserve/proto && ../../.venv-protos/bin/python -m grpc_tools.protoc -I. \
	  --descriptor_set_out=open_inference.binpb open_inference.proto

clean:  ## Remove .venv and what tools leave behind.
	rm -rf .venv .venv-* build .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

.venv/demo.stamp: pyproject.toml constraints.txt
	@echo "Setting up .venv, once: about two minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP_FLAGS) --constraint constraints.txt --editable ".[examples]"
	touch $@

.venv/dev.stamp: pyproject.toml constraints.txt
	@echo "Setting up .venv, once: about two minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install $(PIP_FLAGS) --constraint constraints.txt --editable ".[dev]"
	touch .venv/demo.stamp $@

# Clients of the Open Inference Protocol, which need an older protobuf than the server.
.venv-clients/stamp: Makefile
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/pip install $(PIP_FLAGS) "tritonclient[grpc,http]==2.73.0" "kserve==0.21.0"
	touch $@

# NVIDIA's perf_analyzer, and CUDA's runtime, which it is linked with: downloads of 17.5 MB. Without
# them, the tests with perf_analyzer are skipped.
.venv-perf/stamp: Makefile
	$(PYTHON) -m venv .venv-perf
	.venv-perf/bin/pip install $(PIP_FLAGS) --no-deps "tritonclient==2.50.0" "nvidia-cuda-runtime-cu12==12.9.79" \
	  && touch $@ || echo "no perf_analyzer: its tests are skipped"

# Beam needs an older protobuf than the one that constraints.txt pins.
.venv-clusters/stamp: pyproject.toml
	$(PYTHON) -m venv .venv-clusters
	.venv-clusters/bin/python -m pip install $(PIP_FLAGS) --editable ".[beam,pjrt,ray]" \
	  "apache-beam==2.77.0" "ray==2.60.0" "pytest==9.2.0"
	touch $@

# CUDA's libraries are those that both packages allow: some 5 GB.
.venv-gpu/stamp: pyproject.toml
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/pip install $(PIP_FLAGS) --editable ".[examples]" "tensorflow[and-cuda]" "jax[cuda12]>=0.9,<0.11"
	touch $@

# uv, unlike pip, can choose the lowest versions that pyproject.toml allows.
.venv-lowest/stamp: pyproject.toml
	$(LOWEST_PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/pip install $(PIP_FLAGS) uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable ".[dev]"
	touch $@

# It is set up anew each time: what is latest changes.
.PHONY: .venv-latest/stamp
.venv-latest/stamp:
	$(PYTHON) -m venv --clear .venv-latest
	.venv-latest/bin/pip install $(PIP_FLAGS) uv
	printf 'tensorflow\nkeras-nightly; python_version < "3"\n' > .venv-latest/overrides.txt
	.venv-latest/bin/uv pip install --quiet --python .venv-latest --upgrade $(PRE_RELEASES) --editable ".[dev]"
