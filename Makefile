# `make help` lists the targets. A target makes the environment that it needs, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# -qq hides the warnings of package indexes, not errors.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -qq install -c constraints.txt
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
# Two installations into one environment at the same time would break it.
.NOTPARALLEL:
.PHONY: help demo test lint types unit docs pages format linecov coverage bench bench-env reproduce fuzz clean

unit docs pages linecov coverage bench reproduce fuzz: export OMP_NUM_THREADS = 1

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Fit a model, put an interval on a prediction, write demo.png
	$(BIN)/python examples/demo.py

test: lint types unit ## Everything that continuous integration checks

lint: $(VENV)/.test ## Style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.test ## Static types
	$(BIN)/mypy

unit: $(VENV)/.test ## Tests and the examples in docstrings
	$(PYTEST) -n 2

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

bench: $(VENV)/.bench ## Side by side with other libraries (ONLY=core: one of them; DATA=dir: data sets)
	$(BIN)/python -W ignore -m benchmarks $(ONLY) $(if $(DATA),--data $(DATA))

bench-env: $(VENV)/.laplace ## Install the peers of `make bench`: laplace-torch and delicatessen

reproduce: $(VENV)/.test ## The paper's figures and tables (QUICK=1: a small version; DATA=dir: data sets)
	$(BIN)/python -m experiments $(if $(QUICK),--quick) $(if $(DATA),--data $(DATA))

SECONDS ?= 600
fuzz: $(VENV)/.test ## Seeded attacks that must not be answered silently wrong (SECONDS=600)
	$(BIN)/python tests/hostile/fuzz.py --seconds $(SECONDS)

clean: ## Remove what the other targets wrote, but not the environment
	rm -rf build dist demo.png results/quick htmlcov .coverage .benchmarks .hypothesis
	rm -rf docs/auto_examples docs/api/generated examples/demo.png
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks examples experiments -name __pycache__ -prune -exec rm -rf {} +

# Environments: all live in one directory, and a stamp says which one is complete.

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

$(VENV)/.test $(VENV)/.bench: $(VENV)/.%: $(VENV)/.torch pyproject.toml constraints.txt
	@echo "Installing the package and what the target '$*' needs (a minute or two)"
	@$(INSTALL) -e ".[$*]"
	@touch $@

# laplace-torch asks for torchvision, whose wheels need not match this torch; it runs without.
LAPLACE := laplace-torch==0.3 asdfghjkl==0.1a4 backpack-for-pytorch==1.7.1 \
	curvlinops-for-pytorch==3.0.1 torchmetrics==1.9.0 unfoldNd==0.2.3 einconv==0.1.0 \
	linear_operator==0.6.1

$(VENV)/.laplace: $(VENV)/.bench
	@echo "Installing laplace-torch and delicatessen"
	@$(INSTALL) einops opt-einsum lightning-utilities packaging delicatessen
	@$(INSTALL) --no-deps $(LAPLACE)
	@touch $@
