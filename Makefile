# Each target sets up all it needs: a .venv with the versions of constraints.txt. A second run installs nothing.
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install tools test test-all lint check format package demo clean

help:
	@echo "make test      the fast tests"
	@echo "make test-all  all tests, the slow ones too"
	@echo "make check     lint, format, types, then the fast tests"
	@echo "make demo      train a German-English translator in five minutes and look at it (ARGS=--no-serve)"
	@echo "make format    put the code into its usual shape"
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
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-all: install tools
	$(BIN)/python -m pytest $(ARGS)

# What only the slow tests need. torch.compile generates C++ for a CPU; the page is tested in a browser, in Chinese too.
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

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
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
