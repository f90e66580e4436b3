# `make install` sets everything up in .venv, `make demo` runs the quickstart, `make test` runs the tests.
# On a machine without a GPU the CPU build of torch saves gigabytes, where its index can be reached:
#   make install TORCH_INDEX=https://download.pytorch.org/whl/cpu

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
BIN := $(VENV)/bin
LOCKS := infra/locks
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH := torch==2.13.0
TORCH_INDEX ?=
STUDY ?= pipelines/studies/quickstart.yaml
ARGS ?=

supported := -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))'
# The first interpreter that really runs (a pyenv shim may exist and refuse) and has a supported version.
find_python = for p in python3.11 python3.12 python3; do \
	  $$p $(supported) 2>/dev/null && { echo $$p; exit; }; done; \
	  echo "Python 3.11 or 3.12 is needed. If it is elsewhere: make install PYTHON=/path/to/python3.11" >&2; exit 1

# From the CPU index torch comes without CUDA libraries, and all it needs is in the lock. From the usual index
# it needs them, so pip resolves; the lock then holds the rest to its versions.
ifeq ($(TORCH_INDEX),)
torch_options := -c $(LOCKS)/cpu.txt
else
torch_options := --no-deps --index-url $(TORCH_INDEX)
endif

.PHONY: install dev demo test docs lint format types bench study-plus count parity golden gpu dag nightly-dag tracking audit chaos fuzz clean help
help:
	@sed -n '1,3s/^# //p' Makefile
	@echo 'Also: make dev docs lint format types bench study-plus count parity golden gpu dag nightly-dag tracking audit chaos fuzz clean. ARGS="..." goes to sgpu benchmark, pytest or bench.'

install: $(VENV)/.installed
dev: $(VENV)/.dev

$(VENV)/.installed: $(LOCKS)/cpu.txt pyproject.toml
	if test -x $(BIN)/python; then $(BIN)/python $(supported) \
	  || { echo "$(VENV) has another Python than 3.11 or 3.12: make clean, then make install" >&2; exit 1; }; \
	else python="$${PYTHON:-$$($(find_python))}"; \
	  "$$python" $(supported) 2>/dev/null \
	    || { echo "$$python is not Python 3.11 or 3.12: make install PYTHON=/path/to/python3.11" >&2; exit 1; }; \
	  "$$python" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; fi
	$(PIP) install --quiet --upgrade pip
	$(PIP) install --quiet $(torch_options) $(TORCH)
	$(PIP) install --quiet --no-deps -r $(LOCKS)/cpu.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.dev: $(LOCKS)/dev.txt $(VENV)/.installed examples/easy_vqa/pyproject.toml
	$(PIP) install --quiet --no-deps -r $(LOCKS)/dev.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e examples/easy_vqa
	touch $@

demo: install
	$(BIN)/sgpu benchmark $(STUDY) $(ARGS)

# One file of tests is one process, so that what a file sets up is made once. A third process for two cores: many
# tests wait for a server, a cluster or a command.
PROCESSES ?= 3
test: dev
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

# The pages of docs/, with their links checked; build/docs/index.html opens without a server.
docs: dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: dev
	$(BIN)/mypy

bench: install
	$(BIN)/python -m bench $(ARGS)

# The registered study of sgpu_plus, docs/studies: two hours on two cores; a repeated command goes on.
study-plus: dev
	$(BIN)/python -m bench.study_plus $(ARGS)

# Lines, data classes, names and docstrings of the tree.
count: install
	@$(BIN)/python -m infra.count

# Peer libraries stand apart and without their dependencies: single modules of theirs are compared with ours.
PEERS := lm-polygraph==0.7.0 uqlm==0.6.7
parity: dev .parity/.installed
	$(BIN)/python -m pytest -m parity tests/parity $(ARGS)

.parity/.installed: Makefile
	$(PIP) install --quiet --no-deps --upgrade --target .parity $(PEERS)
	touch $@

# Whether commands give today what they gave before the modules were moved; tests/golden/__main__.py says how.
# ARGS names cases, and --write stores what differs.
golden: dev
	$(BIN)/python -m tests.golden $(ARGS)

# On a GPU machine, with the Python that has torch there: nothing is installed, what is missing is named and left
# out. Rates go to bench/results/gpu/. `make gpu GPU_MARK="not gpu" GPU_DEVICE=cpu` tries the suite itself.
GPU_PYTHON ?= python3
GPU_MARK ?= gpu
GPU_DEVICE ?= cuda
gpu:
	$(GPU_PYTHON) -m pytest -rs -m "$(GPU_MARK)" tests/gpu tests/engines/test_image_sampling.py -p no:cacheprovider $(ARGS)
	$(GPU_PYTHON) -m bench.gpu --device $(GPU_DEVICE)

dag: install
	DAGSTER_DISABLE_TELEMETRY=1 SGPU_STUDY=$(STUDY) $(BIN)/dagster dev -h 127.0.0.1 -p 3000 -m pipelines.definitions $(ARGS)

tracking: install
	@echo 'Studies: http://127.0.0.1:5000/#/experiments?workflowType=machine_learning'
	MLFLOW_DISABLE_TELEMETRY=true $(BIN)/mlflow server --host 127.0.0.1 --port 5000 \
	  --backend-store-uri sqlite:///runs/mlflow.db --artifacts-destination runs/mlflow-artifacts $(ARGS)

# Known faults of the pinned packages; asks a vulnerability service. 3: something could not be looked up.
AUDITOR := pip-audit==2.10.1
audit: install .audit/.installed
	PYTHONPATH=.audit $(BIN)/python infra/audit.py $(LOCKS)/cpu.txt $(LOCKS)/dev.txt $(LOCKS)/gpu.txt \
	  infra/docker/cluster.txt $(ARGS)

.audit/.installed: Makefile
	$(PIP) install --quiet --upgrade --target .audit $(AUDITOR)
	touch $@

# Breaks the nightly job on purpose; half an hour and more. `make fuzz` tries its readers with coverage.
chaos: dev
	$(BIN)/python -m pytest -m chaos tests/chaos -p no:cacheprovider $(ARGS)

fuzz: dev .fuzz/.installed
	PYTHONPATH=.:.fuzz $(BIN)/python tests/chaos/fuzz_logs.py -runs=30000 -seed=1 $(ARGS)

.fuzz/.installed: Makefile
	$(PIP) install --quiet --upgrade --target .fuzz atheris==3.0.0
	touch $@

nightly-dag: install
	DAGSTER_DISABLE_TELEMETRY=1 $(BIN)/dagster dev -h 127.0.0.1 -p 3000 -m pipelines.scoring $(ARGS)

# Results under runs/ and the converted weights in the user's cache stay.
clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .parity .audit .fuzz bench-results

.PHONY: test-cluster
# A study on three Ray nodes of this machine, two of which are taken away; some ten minutes on two busy cores.
test-cluster: dev
	$(BIN)/python -m pytest -m cluster tests/cluster $(ARGS)

.PHONY: paper-dry-run
# All studies of the paper, small and with made-up data, answers and votes; their tables beside the published ones.
paper-dry-run: dev
	$(BIN)/python -m tests.paper $(ARGS)

.PHONY: scaling
# Writes the tables of infra/SCALING.md anew, below its mark: the studies of the paper replayed, seconds, no cluster.
PAGE := infra/SCALING.md
scaling: install
	{ sed '/^<!-- replays -->$$/q' $(PAGE); \
	  for study in "paper --set datasets.3.path=." paper_text; do read -r name set <<< "$$study"; \
	    printf '\n    sgpu plan pipelines/studies/%s.yaml%s\n\n' "$$name" "$${set:+ $$set}"; \
	    $(BIN)/sgpu plan pipelines/studies/$$name.yaml $$set $(ARGS) | sed -n '/^GPUS/,/^$$/s/^./    &/p'; done; } > $(PAGE).new
	mv $(PAGE).new $(PAGE)
