# Two commands do everything: `make demo` and `make test`. Each makes .venv on first use.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test check format soak clean

demo: $(INSTALLED)  ## Train six federated optimizers on a small federation and write a report
	$(BIN)/fedopt compare emnist_cr --algorithms fedavg,fedavgm,fedadagrad,fedadam,fedyogi,scaffold \
	  --rounds $(DEMO_ROUNDS) --out demo $(DEMO_SET)

# 100 writers, 10 a round: SCAFFOLD meets each client again every ten rounds. Fewer steps than a whole
# epoch keep the demonstration short.
DEMO_ROUNDS ?= 20
DEMO_SET ?= --set data.clients=100 --set client.steps=4 --set eval.every=4 --set eval.last_every=4 \
  --set eval.sample=1000

test: check  ## Lint, type-check and test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A long run that is killed and resumed at random until the budget is spent.
SOAK_SECONDS ?= 600
soak: $(INSTALLED)
	$(BIN)/python benchmarks/soak.py --seconds $(SOAK_SECONDS)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) demo
