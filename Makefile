# make demo    set up, then show a simulated 8-card node pass the three gates
# make test    set up, then run the tests
# make check   format, lint, types, import rules
# make clean   remove what these commands made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
NATIVE := $(wildcard fake_dcmi/csrc/* fake_dcmi/csrc/smi/* simulator/runtime/csrc/*)

.PHONY: demo test check clean setup

setup: $(STAMP)

$(STAMP): pyproject.toml CMakeLists.txt $(NATIVE)
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found. Next: apt-get install python3 python3-venv" >&2; exit 4; }
	@command -v cc >/dev/null || { echo "make: no C compiler (cc) found; libdcmi.so must be compiled. Next: apt-get install gcc" >&2; exit 4; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) found, Python 3.11 or newer wanted. Next: apt-get install python3.11 python3.11-venv, then make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 4; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "make: cannot create a virtual environment. Next: apt-get install python3-venv" >&2; exit 4; }
	@echo "setup: installing npu-testbed into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,check]'
	@touch $@

demo: $(STAMP)
	$(BIN)/npu-testbed run --mode live scenarios/acceptance/single-card.yaml

test: $(STAMP)
	$(BIN)/python -m pytest -n 3 $(PYTEST_ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
