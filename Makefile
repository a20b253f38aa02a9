# make demo      train a DLRM with the engine in software, then with the simulated accelerator
# make test      the test suite; `make quick` leaves out what builds or trains for long;
#                `make test SINCE=main` runs the tests near the files that differ from main
# make formal    every proof, which `make test` leaves out
# make cocotb    every unit beside its golden model in cocotb, on Verilator and Icarus: minutes
# make docs      the documentation site in build/site; a warning is an error
# make soak      a million rows moved at random through rough memory, RTL against model: minutes
# make plan-soak ten million lookups planned at random, RTL against model: many minutes
# make hostile   random commands and register writes on the simulated card: minutes
# make coverage  what the device's tests execute of Verilog and driver; asks for a system Verilator
# make regress   lint, and what make test leaves out: further sizes, seeds and combinations
# make nightly   whole boards in simulation, sanitizers, tables of full size, the wheel
# make route     synthesise, place and route each board, and the card alone: hours
# Each sets up its own virtual environment in .venv first and says what is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test quick cocotb formal soak plan-soak hostile coverage regress nightly route lint \
	docs generated clean prerequisites
.DEFAULT_GOAL := test

demo: $(VENV)/.installed-demo
	$(BIN)/hotrow demo $(ARGS)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not formal and not long and not nightly and not route" $(ARGS) \
		$(if $(SINCE),$$($(BIN)/python -m tests.support.changed_tests $(SINCE)))

quick: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow and not long and not nightly and not route" $(ARGS)

formal: $(VENV)/.installed-formal
	$(BIN)/python -m pytest tests/formal $(ARGS)

cocotb: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/cocotb -m "not nightly" $(ARGS)

soak: $(VENV)/.installed-dev
	$(BIN)/python -m tests.support.fuzz.soak $(ARGS)

hostile: $(VENV)/.installed-dev
	$(BIN)/python -m tests.support.fuzz.hostile $(ARGS)

coverage: $(VENV)/.installed-dev
	mkdir -p build/coverage && HOTROW_COVERAGE=$(CURDIR)/build/coverage $(BIN)/python -m coverage run \
		--branch --source=sw_driver/hotrow -m pytest -n 0 -m slow tests/sim/device $(ARGS) && \
		$(BIN)/python -m coverage report && verilator_coverage --annotate build/coverage/lines \
		build/coverage/*.dat

plan-soak: $(VENV)/.installed-dev
	$(BIN)/python -m tests.support.fuzz.plan_soak $(ARGS)

regress: lint
	$(BIN)/python -m pytest -m "long and not nightly and not formal and not route" $(ARGS)

nightly: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m nightly $(ARGS)

route: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m route $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

generated: $(VENV)/.installed-dev
	$(BIN)/python -m hotrow_rtl.contract.render --write

clean:
	rm -rf build $(VENV)

prerequisites:
	@sh .ci/prerequisites "$(PYTHON)"

$(BIN)/python: | prerequisites
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV): about 330 MB of packages, of which PyTorch's CPU build is 190 MB"
	@echo "(where pip is offered only PyTorch's CUDA build, several GB instead)."
	$(PIP) --editable ".[sim,explore]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV): about 350 MB of packages, of which PyTorch's CPU build is 190 MB"
	@echo "(where pip is offered only PyTorch's CUDA build, several GB instead)."
	$(PIP) --editable ".[dev]"
	@touch $@ $(VENV)/.installed-demo $(VENV)/.installed-formal

$(VENV)/.installed-formal: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[formal]"
	@touch $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[docs]"
	@touch $@
