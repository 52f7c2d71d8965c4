# What a person runs here. `make help` lists it; everything else is made when it is needed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed-$(shell sha256sum pyproject.toml | cut -c1-12)
PYTEST := $(BIN)/python -m pytest
# JUNIT=FOLDER: every target of tests leaves FOLDER/TARGET.xml.
REPORT  = $(if $(JUNIT),--junit-xml=$(JUNIT)/$@.xml)

.DEFAULT_GOAL := help
.PHONY: help demo test unit sim mutations kill ssh kubernetes whole check format bench recording clean
.PHONY: rig-ssh rig-kubernetes

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

demo: venv-examples ## launch the RL example, kill its trainer once, watch the reward rise
	@$(BIN)/python scripts/demo.py

test: unit sim mutations kill whole ## all tests

unit: venv-dev ## the tests that need seconds, not minutes: all but the next five
	$(PYTEST) -n 2 --dist loadfile -m "not whole and not sim and not kill and not ssh and not kubernetes" $(REPORT) $(ARGS)

sim: venv-dev ## the simulated world over its seeds
	$(PYTEST) -m sim $(REPORT) $(ARGS) tests/sim tests/stories

mutations: venv-dev ## deliberate mistakes in decide: each must be caught
	ARGOSY_LONG=1 $(PYTEST) -n 2 -m sim $(REPORT) $(ARGS) tests/sim/test_mutations_long.py

kill: venv-dev ## server, agent and wrappers killed at seeded system calls; ARGOSY_KILL_POINTS=40
	$(PYTEST) -n 2 -m kill $(REPORT) $(ARGS) tests/kill

ssh: venv-dev ## the suite on real SSH hosts, in network namespaces: as root
	$(PYTEST) -m "ssh and not kubernetes" $(REPORT) $(ARGS) tests/infra/ssh

kubernetes: venv-dev ## the suite on a real cluster, compiled once (8 minutes): as root; ARGOSY_GANG_TIMES=3
	$(PYTEST) -m kubernetes $(REPORT) $(ARGS) tests/infra

whole: venv-dev ## real groups through the real command; NETWORK=isolated|host
	$(PYTEST) -m whole $(if $(NETWORK),--network $(NETWORK)) $(REPORT) $(ARGS) $(TESTS)

check: venv-dev ## format, lint, types, import contracts, tidiness, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports
	$(PYTEST) tests/test_tidy.py tests/test_docs.py

format: venv-dev ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: venv-dev ## every budget beside its peers, in one run
	$(BIN)/python -m benchmarks $(ARGS)

rig-ssh: ## real SSH hosts that stay up; prints what to export. HOSTS=3
	@tests/rigs/ssh/sshrig up --hosts $(or $(HOSTS),3) --jump
	@echo '# every verb: tests/rigs/ssh/sshrig --help; it all goes with: tests/rigs/ssh/sshrig down'
	@echo '# on the laptop that reaches them: tests/rigs/ssh/sshrig laptop -- CMD'
	@echo "export SSHRIG_HOME=$${SSHRIG_HOME:-/tmp/sshrig}"

rig-kubernetes: ## a real cluster that stays up; prints what to export. NODES=3
	@tests/rigs/kubernetes/kuberig up --nodes $(or $(NODES),3) --gpus node-1=8:NVIDIA-H100-80GB-HBM3 >/dev/null
	@echo '# every verb: tests/rigs/kubernetes/kuberig --help; it all goes with: tests/rigs/kubernetes/kuberig down'
	@echo "export KUBECONFIG=$${KUBERIG_HOME:-/tmp/kuberig}/kubeconfig"

recording: venv-dev ## docs/demo.svg, from a real `make demo`
	$(BIN)/python scripts/record_demo.py docs/demo.svg

clean: ## remove what these targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist .bench
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment, filled as far as a target needs; a stamp for each filling, named after pyproject.toml.
.PHONY: venv-examples venv-dev
venv-examples: $(STAMP)-examples
venv-dev: $(STAMP)-dev

$(STAMP)-%: | $(BIN)/python
	@echo "installing argosy[$*] into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@

$(BIN)/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: Python 3.11 or newer is needed; hint: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "making $(VENV) with $(PYTHON) ..."
	@"$(PYTHON)" -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "error: no venv could be made; hint: apt-get install python3-venv" >&2; exit 2; }
