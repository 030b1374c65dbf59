# Two commands matter: `make demo` and `make test`. Both install what they need into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
WORKERS ?= 2

.PHONY: demo test torture docs check clean install

demo: $(STAMP)
	$(BIN)/fairvae train --dataset adult --group gender --level sparse --overwrite --out runs/demo

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Hostile input, faults and load, for minutes; TORTURE="--parts flips --seed 7" chooses.
torture: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture $(TORTURE)

# The site in docs/_build/html: warnings are errors, examples are run, pages are opened in a browser.
docs: $(VENV)/docs
	OMP_NUM_THREADS=2 $(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	$(BIN)/python -m pytest -q tests/test_site.py

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@# mypy sees only the installed layout when the four folders lie in one tree.
	rm -rf build/typecheck && mkdir -p build/typecheck/pyro_fairvae
	cp -r pyro_fairvae/. build/typecheck/pyro_fairvae/
	cp -r models guides run build/typecheck/pyro_fairvae/
	cd build/typecheck && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p pyro_fairvae

install: $(STAMP)

$(STAMP): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

$(VENV)/docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $(VENV)/docs

clean:
	rm -rf $(VENV) build dist docs/_build docs/_gallery docs/_api *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
