# Two commands do everything: `make demo` and `make test`. Each makes .venv on first use.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The tests start many processes. Without stored bytecode, each would compile the package and the tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all check lint format browser docs figures dist screenshots claims claims-page soak fuzz audit lock clean

demo: $(INSTALLED)  ## Compare five federated optimizers on sparse and dense data and write demo/index.html
	$(BIN)/python examples/demo.py --out demo

test: lint  ## Lint and test; one of the tests is the type checker
	$(PYTEST) -m "not slow"

test-all: lint  ## Also run the tests that take half a minute or more
	$(PYTEST)

# Some tests wait for other processes, so three processes use two cores better than two.
TEST_PROCESSES ?= 3
# With tests/support/group_scheduling.py, loadscope means one process for each group of tests.
PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadscope -q

check: lint  ## Lint and type-check
	$(BIN)/mypy

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)  ## Build the documentation site in site/
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'to read: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site'

dist: $(INSTALLED)  ## Build the wheel and the source distribution in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

browser:  ## Install the browser of the tests with the packages of Debian, as root or with sudo
	$(SUDO) apt-get update --quiet=2
	$(SUDO) apt-get install --yes --no-install-recommends chromium chromium-driver
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)

# Images of the pages for docs/pages.md: trains the demo, a sweep and a reproduction, minutes.
screenshots: $(INSTALLED)
	PYTHONPATH=tests/support $(BIN)/python docs/screenshots.py

# All figures of the documentation: screenshots, claims, the demo, and growth, which is measured again.
figures: screenshots claims-page
	$(BIN)/python examples/demo.py --out demo --figure docs/figures/demo.svg
	$(BIN)/python benchmarks/growth.py --write docs/performance.md

# The paper's claims: runs what has no result yet (hours, resumable), then writes docs/claims.md. The real data
# must be imported to CLAIMS_WORK/data first; docs/claims.md has the commands.
CLAIMS_WORK ?= runs/claims
CLAIMS := PYTHONPATH=benchmarks $(BIN)/python -m claims
claims: $(INSTALLED)
	$(CLAIMS) run --work $(CLAIMS_WORK); $(CLAIMS) page

claims-page: $(INSTALLED)
	$(CLAIMS) page

# Runs, sweeps and imports are killed and disturbed at random and must give the same results.
SOAK_SECONDS ?= 600
soak: $(INSTALLED)
	$(BIN)/python benchmarks/soak.py --seconds $(SOAK_SECONDS) --write docs/reliability.md

# Coverage-guided fuzzing of the readers of binary files, FUZZ_SECONDS for each.
FUZZ_SECONDS ?= 60
fuzz: $(INSTALLED)
	$(PIP) -c constraints.txt -e '.[fuzz]'
	$(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS)

audit: $(INSTALLED)  ## Look up known vulnerabilities of the locked packages
	$(PIP) -c constraints.txt -e '.[audit]' || echo "skipped: pip-audit cannot be installed (offline?)"
	! $(BIN)/python -c 'import pip_audit' 2> /dev/null || $(BIN)/python tools/audit.py

lock: $(INSTALLED)  ## Write requirements-hashes.txt
	$(PIP) -c constraints.txt -e '.[audit]'
	tools/lock.sh $(BIN)/python

# With LOCKED=1, pip accepts only files with the checksums in requirements-hashes.txt.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
ifdef LOCKED
	$(PIP) --require-hashes -r requirements-hashes.txt
	$(PIP) --no-deps --no-build-isolation -e .
else
	$(PIP) -c constraints.txt -e '.[dev]'
endif
	touch $@

clean:
	rm -rf $(VENV) demo dist
