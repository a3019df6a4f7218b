# Ergon: `make demo` to see it, `make test` to check it. Everything is installed into .venv by itself.
PYTHON ?= python3
PORT ?= 8000
BIN := .venv/bin
BENCH := .venv-bench/bin
# uv installs in seconds; where it cannot reach the packages, pip with its own configuration can.
PIP = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes

.DEFAULT_GOAL := help
.PHONY: help demo demo-env test check format docs screenshots lock bench soak test-matrix clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

demo: .venv/ready ## Run everything on this machine (PORT=8000); Ctrl-C ends it
	@exec $(BIN)/python -m ergon_site.demo --port $(PORT)

demo-env: ## Print the variables of the demo, to be evaluated by a shell
	@cat var/demo/$(PORT)/env.sh 2>/dev/null || { echo "there is no demo: start it with make demo PORT=$(PORT)" >&2; exit 1; }

test: .venv/ready ## Run the whole suite, on SQLite and on PostgreSQL
	$(BIN)/python -m tests.install
	$(BIN)/python -m tests.passes $(ARGS)

check: .venv/ready ## Format, lint, types, import contracts, migrations, schema, sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	git ls-files -z '*.py' | xargs -0 $(BIN)/django-upgrade --target-version 5.2 --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py spectacular --validate --fail-on-warn --file /dev/null
	$(BIN)/python -m tests.architecture.sizes

format: .venv/ready ## Put the code in order
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv-docs/ready ## Build the documentation as a site with search, in var/docs
	rm -rf var/docs var/docs-source && mkdir -p var/docs-source
	cp -r --parents docs README.md CONTRIBUTING.md CHANGELOG.md LICENSE benchmarks/README.md \
	  tests/end_to_end/test_walks.py var/docs-source
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict --config-file docs/mkdocs.yml
	@echo "python3 -m http.server --directory var/docs 8080 serves it"

screenshots: .venv/ready ## Make the pictures of the documentation from a demo, with headless Chromium
	$(BIN)/python -m tests.screenshots

lock: .venv/ready ## Pin requirements/*.in anew into requirements/*.txt
	for name in base production s3 dev bench docs; do \
	  $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-annotate --no-emit-index-url requirements/$$name.in --output-file requirements/$$name.txt || exit 1; \
	done

bench: .venv-bench/ready ## Run the benchmarks, with what they compare Ergon to in .venv-bench
	$(BENCH)/python -m benchmarks $(ARGS)

soak: .venv/ready ## Run the long forms of the proofs
	$(BIN)/python -m tests.install
	$(BIN)/python -m pytest --soak --database sqlite $(ARGS)
	$(BIN)/python -m pytest --soak --database postgresql $(ARGS)

test-matrix: .venv/ready ## Run the suite on each Python and Django that can be had (PYTHONS=, ARGS=)
	$(BIN)/python -m tests.matrix $(ARGS)

clean: ## Remove the virtual environment, caches and demo data
	rm -rf .venv .venv-bench .venv-docs .venv-matrix var .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.venv/ready: requirements/dev.txt
.venv-bench/ready: requirements/bench.txt
.venv-docs/ready: requirements/docs.txt
.venv/ready .venv-bench/ready .venv-docs/ready:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ergon needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(@D)
	@echo "Installing $< …"
	@sed -n '/^uv==/,/[^\\]$$/p' $< > $(@D)/uv.txt
	@$(PIP) -r $(@D)/uv.txt
	@$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --require-hashes -r $< \
	  || $(PIP) -r $<
	@touch $@
