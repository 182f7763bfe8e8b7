# `make help` lists the targets. A target makes the environment that it needs, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
CLEAN := build/clean
# -qq hides the warnings of package indexes, not errors.
PIP := -m pip --disable-pip-version-check -qq install
INSTALL := $(BIN)/python $(PIP) -c constraints.txt
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
# Two installations into one environment at the same time would break it.
.NOTPARALLEL:
.PHONY: help demo test test-lowest lint types unit dist docs pages format linecov coverage bench \
	bench-env peers reproduce fidelity fuzz clean test-portable

unit test-lowest test-portable dist docs pages linecov coverage bench peers reproduce fidelity fuzz: export OMP_NUM_THREADS = 1

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Fit a model, put an interval on a prediction, write demo.png
	$(BIN)/python examples/demo.py

test: lint types unit ## Style, types and all tests

lint: $(VENV)/.test ## Style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.test ## Static types
	$(BIN)/mypy

unit: $(VENV)/.test ## Tests and the examples in docstrings
	$(PYTEST) -n 2

test-lowest: $(LOWEST)/.done ## The tests with the lower bounds of pyproject.toml (PYTHON=python3.11)
	$(LOWEST)/bin/python -m pytest -n 2

# Settings by which OpenBLAS (in NumPy and SciPy) and torch compute as on other processors.
test-portable: $(VENV)/.test ## The fast tests as on three other processors (ARGS="-k torch": some)
	@for setting in OPENBLAS_CORETYPE=Nehalem OPENBLAS_CORETYPE=SkylakeX ATEN_CPU_CAPABILITY=default; do \
		if [ $$setting = OPENBLAS_CORETYPE=SkylakeX ] && ! grep -qs avx512dq /proc/cpuinfo; then \
			echo "== $$setting: left out, this processor has no AVX-512"; continue; fi; \
		echo "== $$setting"; \
		env $$setting $(PYTEST) -q -n 2 -m "not slow" $(ARGS) || failed="$$failed $$setting"; \
	done; test -z "$$failed" || { echo "Failed under:$$failed"; exit 1; }

dist: $(VENV)/.dist ## Build sdist and wheel and try both in a clean environment (FULL=1: all tests)
	rm -rf dist $(CLEAN) build/sdist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/check_wheel.py dist/*.whl
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/bin/python $(PIP) dist/*.whl
	cd build && clean/bin/python -W error -m implicit_delta
	mkdir build/sdist && tar -xzf dist/*.tar.gz -C build/sdist --strip-components 1
	$(CLEAN)/bin/python $(PIP) hypothesis pytest pytest-xdist
	cd build/sdist && ../clean/bin/python -m pytest -q -n 2 -m "not slow"
	$(if $(FULL),$(MAKE) -C build/sdist unit)

docs: $(VENV)/.test ## The site, in build/docs (QUICK=1: without running its examples)
	$(BIN)/python -m sphinx -q -W --keep-going $(if $(QUICK),-D plot_gallery=0) docs build/docs

pages: $(VENV)/.test ## Write fresh outputs into README.md and the pages of the site
	$(BIN)/python tests/pages.py README.md docs/llms.txt docs/*.md docs/*/*.md

format: $(VENV)/.test ## Rewrite the files in the house format
	$(BIN)/ruff check --fix --exit-zero
	$(BIN)/ruff format

linecov: $(VENV)/.test ## Lines of the package that the tests run
	$(PYTEST) -n 2 --cov --cov-report=term --cov-report=html

coverage: $(VENV)/.test ## Coverage of intervals, by simulation (QUICK=1: a small version)
	$(BIN)/python -m experiments.coverage $(if $(QUICK),--quick)

bench: $(VENV)/.bench ## Ratios beside the stored ones (ONLY=core: one file; STORE=1: keep, resume; AGAIN=1: all; DATA=dir)
	$(BIN)/python -W ignore -m benchmarks $(ONLY) $(if $(STORE),--store) $(if $(AGAIN),--again) \
		$(if $(DATA),--data $(DATA))

peers: $(VENV)/.test ## Ten questions put to other libraries, each in its own environment (ONLY="iminuit car")
	$(BIN)/python -m benchmarks.peers $(if $(ONLY),--only $(ONLY))

bench-env: $(VENV)/.laplace ## Install the peers of `make bench`: laplace-torch and delicatessen

reproduce: $(VENV)/.test ## The paper's figures and tables (QUICK=1: a small version; DATA=dir: data sets)
	$(BIN)/python -m experiments $(if $(QUICK),--quick) $(if $(DATA),--data $(DATA))

fidelity: $(VENV)/.test ## Standard errors of networks over the spread of retrainings (QUICK=1: a glance)
	$(BIN)/python -m experiments.fidelity $(if $(QUICK),--quick)

SECONDS ?= 600
fuzz: $(VENV)/.test ## Seeded attacks that must not be answered silently wrong (SECONDS=600)
	$(BIN)/python tests/hostile/fuzz.py --seconds $(SECONDS)

clean: ## Remove what the other targets wrote, but not the environment
	rm -rf build dist demo.png results/quick htmlcov .coverage .benchmarks .hypothesis
	rm -rf docs/auto_examples docs/api/generated docs/_ext/__pycache__ examples/demo.png
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks examples experiments -name __pycache__ -prune -exec rm -rf {} +

# Environments: all live in one directory, and a stamp says which one is complete.

# The first pip that installs dependency groups; the one that comes with Python may be older.
GROUPS_PIP := pip>=25.1

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@echo "Creating the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the package and matplotlib (less than a minute)"
	@$(INSTALL) -e ".[plot]"
	@touch $@

# torch goes first: alone, the constraint decides its build, and nothing else can ask for another.
$(VENV)/.torch: constraints.txt | $(BIN)/python
	@echo "Installing torch"
	@$(INSTALL) torch
	@touch $@

$(VENV)/.test: $(VENV)/.torch pyproject.toml constraints.txt
	@echo "Installing the package and what its tests need (a minute or two)"
	@$(INSTALL) "$(GROUPS_PIP)"
	@$(INSTALL) -e ".[all,docs]" --group test
	@touch $@

$(VENV)/.bench: $(VENV)/.torch pyproject.toml constraints.txt
	@echo "Installing the package and its extras (a minute or two)"
	@$(INSTALL) -e ".[all]"
	@touch $@

$(VENV)/.dist: | $(BIN)/python
	@$(INSTALL) build twine
	@touch $@

# torch stays at the version of constraints.txt, the build for CPUs that is to be had.
$(LOWEST)/.done: pyproject.toml constraints.txt tools/lowest.py
	@echo "Creating the environment $(LOWEST) (a few minutes)"
	@rm -rf $(LOWEST)
	@$(PYTHON) -m venv $(LOWEST)
	@$(PYTHON) tools/lowest.py > $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python $(PIP) "$(GROUPS_PIP)"
	@$(LOWEST)/bin/python $(PIP) -c constraints.txt torch
	@$(LOWEST)/bin/python $(PIP) -c constraints.txt -c $(LOWEST)/lowest.txt -e ".[all,docs]" --group test
	@touch $@

# laplace-torch asks for torchvision, whose wheels need not match this torch; it runs without.
LAPLACE := laplace-torch==0.3 asdfghjkl==0.1a4 backpack-for-pytorch==1.7.1 \
	curvlinops-for-pytorch==3.0.1 torchmetrics==1.9.0 unfoldNd==0.2.3 einconv==0.1.0 \
	linear_operator==0.6.1

$(VENV)/.laplace: $(VENV)/.bench
	@echo "Installing laplace-torch and delicatessen"
	@$(INSTALL) "$(GROUPS_PIP)"
	@$(INSTALL) --group bench
	@$(INSTALL) --no-deps $(LAPLACE)
	@touch $@
