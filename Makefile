# Two commands for a newcomer: `make demo` and `make test`. Each sets up all it needs in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
# Bytecode is written when a module is first imported: most of what is installed never is, and compiling all of it takes
# longer than unpacking it. Images often forbid to write it; then each process of a test would compile all it imports.
INSTALL := $(PIP) install --no-compile
# uv installs what is locked in a tenth of the time. It does not read pip's settings: where it cannot be had, or finds no
# packages, pip installs the same.
locked = $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r $(1) 2>/dev/null || \
  $(INSTALL) --require-hashes -r $(1)
export PYTHONDONTWRITEBYTECODE =
# Options of pip for torch alone, for example to take its CPU build, which spares the libraries of GPUs on Linux.
TORCH ?=

.PHONY: demo demo-train test test-ci test-all dist-check gpu-check check house lint docs renew format lock judges clean

demo: $(VENV)/.base
	$(BIN)/python pipelines/demo_corpus.py --out demo
	@echo
	@echo '$$ dataaudit build pipelines/demo.yaml --manifest demo/manifest'
	@$(BIN)/dataaudit build pipelines/demo.yaml --manifest demo/manifest; code=$$?; \
	  test $$code -eq 3 || { echo "expected exit code 3 (one shard is broken on purpose), found $$code"; exit 1; }
	@echo
	@echo '$$ dataaudit gate demo/manifest --policy release-gate'
	@$(BIN)/dataaudit gate demo/manifest --policy release-gate --out demo/gate.json; code=$$?; \
	  test $$code -eq 3 || { echo "expected exit code 3 (leaks are planted, and a shard is broken), found $$code"; exit 1; }
	@echo
	@echo '$$ dataaudit report demo/manifest --policy release-gate --out demo/report.html'
	@$(BIN)/dataaudit report demo/manifest --policy release-gate --out demo/report.html

# A small model on a corpus with one bad shard: the spike is named (exit code 1), with the shard held back the run is
# silent (0), and killed and resumed it is as before (1). About two minutes, most of them training; SHORT=1: the first run.
RUN = $(BIN)/python pipelines/demo_train.py train --manifest demo-train/manifest --run demo-train
ATTRIBUTE = $(BIN)/dataaudit attribute --manifest demo-train/manifest
define expect
code=$$?; test $$code -eq $(1) || { echo "expected exit code $(1), found $$code"; exit 1; }
endef
demo-train: $(VENV)/.train
	rm -rf demo-train
	$(BIN)/python pipelines/demo_train.py corpus --out demo-train
	$(BIN)/dataaudit build pipelines/demo-train.yaml --manifest demo-train/manifest --workers 0 --quiet > demo-train/show.txt
	$(BIN)/dataaudit gate demo-train/manifest --policy release-gate
	@echo; echo '== a run on all of it'
	$(RUN)/run
	@$(ATTRIBUTE) demo-train/run --picture demo-train/loss.png > demo-train/run.txt; $(call expect,1)
	@cat demo-train/run.txt
ifndef SHORT
	@echo; echo '== the same with the shard held back'
	$(BIN)/dataaudit quarantine add demo-train/quarantine.jsonl --manifest demo-train/manifest \
	  train/train/code/part-047.jsonl --reason garbled
	$(RUN)/clean --quarantine demo-train/quarantine.jsonl
	@$(ATTRIBUTE) demo-train/clean; $(call expect,0)
	@echo; echo '== killed in the middle of the bad shard, and resumed from its checkpoint'
	@$(RUN)/killed --kill-at 372; $(call expect,137)
	$(RUN)/killed
	@$(ATTRIBUTE) demo-train/killed > demo-train/killed.txt; $(call expect,1)
	@head -1 demo-train/killed.txt
	@test "$$(head -1 demo-train/run.txt)" = "$$(head -1 demo-train/killed.txt)" || { echo 'expected the same answer'; exit 1; }
endif
	@echo; echo '== what went on in the model'
	$(BIN)/dataaudit report --run demo-train/run --out demo-train/run.html
	@echo 'The picture: demo-train/loss.png. The answers: demo-train/*/attribution.json. The report: demo-train/run.html.'

# The lane `always`: two processes share the files, with one thread each: threads that wait for each other by spinning take
# each other's time. Progress and the time left are printed every half minute; the last line says what was not run.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Parts of the tests, which CI runs where a change reaches them: PART=kills,torch for some. When all have passed in one
# run, tests/passed.txt says so. MINUTES=9: after so many begins no further part.
PART ?= all
MINUTES ?=
test-ci: $(VENV)/.judges
	$(BIN)/python tests/families.py parts '$(PART)' $(MINUTES)

# What runs before a release: further repetitions of the same tests, scripts of benchmarks, packages, frameworks. It goes on
# where the last one stopped, and tests/passed.txt says when all had passed.
test-all: $(VENV)/.judges
	$(BIN)/python tests/families.py release

# Each library whose files we write or whose orders we read, in an environment of its own that sees ours. `frameworks` has
# those whose loops we follow, and the trackers: TensorBoard, W&B, MLflow, Grafana's schema, and Debian's Prometheus,
# unpacked. There a test that is skipped has failed.
FRAMEWORKS := mosaicml-streaming litdata megatron-core frameworks
ORDERS := tests/unit/training/test_orders.py::TestTheLibrariesThemselves
TESTS_OF_mosaicml-streaming := tests/unit/training/test_stored.py
TESTS_OF_litdata := tests/unit/training/test_stored.py
TESTS_OF_megatron-core := $(ORDERS) tests/unit/engine/test_token_files.py::test_megatrons_own_reader_and_writer_agree \
  tests/unit/training/test_examples.py::test_the_example_of_megatron_files_trains_by_our_reader_or_is_replayed
TESTS_OF_frameworks := tests/unit/live/test_trackers.py $(addprefix tests/unit/training/test_, reported.py \
  framework_pages.py accelerate.py trainer.py trl.py lightning.py torchtitan.py olmo_core.py) $(ORDERS)::test_olmo
PACKAGES_OF_frameworks := tensorboard wandb mlflow-skinny sqlalchemy alembic sqlparse prometheus-client lightning trl \
  torchtitan ai2-olmo-core grafana-foundation-sdk
SKIPS_OF_frameworks := --no-skips
PREPARE_frameworks := command -v prometheus || (cd $(VENV)-frameworks && apt-get -q download prometheus && dpkg -x prometheus_*.deb .)
.PHONY: $(addprefix test-,$(FRAMEWORKS))
$(addprefix test-,$(FRAMEWORKS)): test-%: $(VENV)/.judges
	rm -rf $(VENV)-$*; $(PYTHON) -m venv $(VENV)-$*
	$(BIN)/python -c 'import os, sysconfig; print(os.getcwd(), sysconfig.get_path("purelib"), sep="\n")' > "$$($(VENV)-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth"
	$(VENV)-$*/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(or $(PACKAGES_OF_$*),$*)
	$(PREPARE_$*)
	PATH="$$PATH:$(abspath $(VENV)-$*)/usr/bin" $(VENV)-$*/bin/python -m pytest -q $(SKIPS_OF_$*) $(TESTS_OF_$*)

# Wheel and sdist, into dist/: built, looked through, and used in a fresh environment of every Python that is here.
dist-check: | $(VENV)/bin/python
	$(BIN)/python tests/dist_check.py

# What only a GPU shows, within six minutes: no environment, no network; docs/howto/gpu-check.md says what it needs.
# `make gpu-check DRY=1` runs all of it, small, on a CPU.
OUT ?= gpu-check
gpu-check:
	PYTHONPATH=".:tests:$$PYTHONPATH" $(PYTHON) -m gpu --out "$(OUT)" $(if $(DRY),--dry-run)

# What a change to some files touches: make check dataaudit/base/text.py docs/reference/gate.md
ifeq (check,$(firstword $(MAKECMDGOALS)))
FILES := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
.PHONY: $(FILES)
$(FILES):
	@:
endif
check: $(VENV)/.dev
	@PATH="$(abspath $(BIN)):$$PATH" python tests/check.py $(FILES)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# How large the package is and how it is built: numbers that a change is compared by.
house: $(VENV)/.dev
	@PYTHONPATH=. $(BIN)/python tests/house.py

# The site, in site/: it opens from disk, and a link that leads nowhere is an error.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# What follows from the code: JSON Schemas, public names (torch has some), the pages of the commands and of the format.
renew: $(VENV)/.train
	$(BIN)/dataaudit schema --out manifests/schema
	for made in public_names.py unit/test_cli.py "golden/make_format_page.py --update-golden"; do \
	  PYTHONPATH=.:tests $(BIN)/python tests/$$made || exit 1; done

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What the toxicity and the personal data judge need, into the same environment.
judges: $(VENV)/.judges

# The lock files: exact versions with hashes, for every Python from 3.11 on.
# torch has builds for each kind of GPU, which differ from machine to machine: its version stands in constraints.txt.
# Those for GPUs bring Triton; beside the CPU build it is installed by itself, for its interpreter runs a kernel in tests.
# requirements.lock is what the demo needs, -ci the GitHub action, -dev what tests, linters and the docs need too, -judges the two judges and the loaders' tests.
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --upgrade --generate-hashes --no-header --no-annotate
COMPILE := $(LOCK) pyproject.toml -c constraints.txt
lock: | $(VENV)/bin/python
	echo uv | $(LOCK) - -o requirements-uv.lock
	$(COMPILE) $(addprefix --extra ,build report) --group backend -o requirements.lock
	$(COMPILE) $(addprefix --extra ,build ci export hf http report s3 serve sign) $(addprefix --group ,dev docs) \
	  -c requirements.lock -o requirements-dev.lock
	$(COMPILE) --extra ci --group backend -c requirements-dev.lock -o requirements-ci.lock
	echo "torch ; sys_platform == 'never'" | $(COMPILE) $(addprefix --extra ,pii toxicity) --group loaders \
	  -c requirements-dev.lock --override - $(addprefix --no-emit-package ,torch sympy mpmath networkx) -o requirements-judges.lock

# What the training demo needs: torch, and what draws.
$(VENV)/.train: constraints.txt $(VENV)/.dev
	$(INSTALL) $(TORCH) -c constraints.txt torch
	@touch $@

clean:
	rm -rf $(VENV) demo demo-train site

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dataaudit needs Python 3.11 or newer; set one with: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	-@$(INSTALL) --require-hashes -r requirements-uv.lock

$(VENV)/.base: requirements.lock pyproject.toml | $(VENV)/bin/python
	$(call locked,requirements.lock)
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.base
	$(call locked,requirements-dev.lock)
	@touch $@

$(VENV)/.judges: requirements-judges.lock constraints.txt $(VENV)/.dev
	$(INSTALL) $(TORCH) -c constraints.txt torch
	$(call locked,requirements-judges.lock)
	$(BIN)/python -c 'import triton' 2>/dev/null || test "$$(uname -sm)" != 'Linux x86_64' || $(INSTALL) --no-deps triton==3.9.0
	@touch $@
