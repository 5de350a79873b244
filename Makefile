# Each target sets up all it needs: a .venv with the versions of constraints.txt. A second run installs nothing.
ARGS ?=
WORKERS ?= 2
VENV := .venv
ifeq ($(OS),Windows_NT) # in the bash that comes with git
SHELL := bash
PYTHON ?= python
BIN := $(VENV)/Scripts
else
PYTHON ?= python3
BIN := $(VENV)/bin
endif
# Each worker computes with one thread, and takes tests from the others when it has no more of its own.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install tools test test-all lint ruff-check ruff-format mypy check format package demo clean

help:
	@echo "make test      the fast tests, in five minutes on two cores (WORKERS=8 on more)"
	@echo "make test-all  all tests, the slow ones too"
	@echo "make lint      ruff check, ruff format --check and mypy"
	@echo "make check     the same, then the fast tests"
	@echo "make demo      train a German-English translator in five minutes and look at it (ARGS=--no-serve)"
	@echo "make format    format the code, and mend what ruff can mend"
	@echo "make package   build the wheel and the sdist"
	@echo "make clean     remove the environment and caches"

install: $(VENV)/installed

# torch first and by itself: its pinned build must be there before anything else asks for a torch.
$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "regard needs Python 3.11 or newer, but '$(PYTHON)' is older; try: make PYTHON=python3.12"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

test: install
	$(PYTEST) -m "not slow" $(ARGS)

test-all: install tools
	$(PYTEST) $(ARGS)

# Only the slow tests need these: torch.compile generates C++ for a CPU; the page is tested in a browser, in Chinese too.
tools:
	@command -v chromium >/dev/null || \
		{ command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qqy chromium; } || \
		echo "chromium is missing: install it to run the tests of the page"
	@fc-list :lang=zh 2>/dev/null | grep -q . || \
		{ command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qqy fontconfig fonts-noto-cjk; } || \
		echo "a Chinese font is missing: install one (fonts-noto-cjk) to run the tests of the page"
	@command -v g++ >/dev/null || \
		{ command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qqy g++; } || \
		echo "g++ is missing: install it to run the tests of compiled code"

lint: ruff-check ruff-format mypy

ruff-check: install
	$(BIN)/ruff check .

ruff-format: install
	$(BIN)/ruff format --check .

mypy: install
	$(BIN)/mypy

check: lint test

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The wheel and the sdist, in dist/.
package: install
	$(BIN)/python -m hatchling build

demo: install
	@$(BIN)/regard demo $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache dist
