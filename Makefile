# Two commands set up a fresh machine: `make run` and `make test`. `make help` lists the others.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
SOURCES := src tests simulation spec docs/examples conf/pipeline packaging hatch_build.py
# What an installation compiles, where a C compiler is.
NATIVE := hatch_build.py src/mdserver/server/clients/_sends.c

.DEFAULT_GOAL := help

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("mdserver needs Python 3.11 or newer, this is %s (set PYTHON=...)" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.txt pyproject.toml $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# What `make demo` needs besides the server: a set of prices, and a timetable.
$(VENV)/.demo: requirements/demo.txt $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/demo.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(VENV)/.run $(VENV)/.demo $@

# Jars that no Python package carries: a Kafka broker for the tests, what Spark needs for Kafka and S3.
# Those that are there are replaced when all new ones have come, so no failure of Maven loses them.
build/jvm/.done: jvm/pom.xml
	@if ! command -v mvn > /dev/null; then \
	  echo "NO JARS: Maven is not installed (Debian: apt-get install maven openjdk-17-jdk-headless)." >&2; \
	  exit 1; \
	fi; \
	new=$(CURDIR)/build/jvm.new; \
	rm -rf $$new; \
	for part in broker spark s3a; do \
	  to=$$new/$$part; \
	  if ! mvn -q -B -f jvm/pom.xml -P $$part dependency:copy-dependencies -DoutputDirectory=$$to \
	    || ! ls $$to/*.jar > /dev/null 2>&1; then \
	    rm -rf $$new; \
	    echo "NO JARS: Maven fetched none for build/jvm/$$part; above it says why. Is there a network?" >&2; \
	    test ! -d build/jvm || echo "The jars that were in build/jvm are left there." >&2; \
	    exit 1; \
	  fi; \
	done; \
	touch $$new/.done; \
	rm -rf build/jvm; \
	mv $$new build/jvm

jars: build/jvm/.done ## fetch for Spark Kafka (build/jvm/spark) and S3 (build/jvm/s3a), and a broker for the tests

# Tests that need jars say that they are skipped. In CI nothing may be skipped.
.PHONY: try-jars
try-jars:
	@$(MAKE) --no-print-directory jars || test -z "$${CI:-}"

run: $(VENV)/.run ## install what the server needs and start it on 127.0.0.1:8800
	@echo "Open http://127.0.0.1:8800/ in a browser, or try in two other terminals:"
	@echo "    $(BIN)/mdserver sub '/greetings/**'"
	@echo "    $(BIN)/mdserver pub /greetings/hello 'Hello, world'"
	@echo "What it does is shown live at http://127.0.0.1:4000/, or by $(BIN)/mdserver top."
	@echo "Ctrl-C ends the server."
	@exec $(BIN)/mdserver run --config conf/loopback.conf

dist-client: $(VENV)/.run ## build the Python client without the server, dist/mdserver_client-*.whl
	cd client && $(CURDIR)/$(BIN)/python -m hatchling build -t wheel -d $(CURDIR)/dist

demo: $(VENV)/.demo ## live pages: a market of real prices, buses on their routes, a chat
	@$(BIN)/python docs/examples/demo.py

pipeline-demo: $(VENV)/.dev ## prices archived, derived from, audited and asked about, in two minutes
	@$(BIN)/python docs/examples/pipeline_demo.py

cluster: $(VENV)/.run ## three members on 127.0.0.1:8801 to 8803, and what to try with them
	@exec $(BIN)/python conf/cluster-3/start.py $(BIN)/mdserver

check: $(VENV)/.dev ## format, rules, types, layers, spelling, figures of the house, imports of tests
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell src tests docs spec simulation conf README.md CHANGELOG.md Makefile pyproject.toml
	$(BIN)/python -m tests.house
	@mkdir -p build
	$(BIN)/python -m pytest --collect-only -q > build/collected || { tail -n 40 build/collected; exit 1; }

format: $(VENV)/.dev ## put the sources into the house style
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

LOCK = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet pyproject.toml
docs: $(VENV)/.dev ## write the pages that are made of the parameter table
	$(BIN)/python -m mdserver.config
	$(BIN)/python packaging/site/metrics.py

lock: ## resolve the lock files in requirements/ anew
	$(LOCK) --extra build -o requirements/run.txt
	$(LOCK) -c requirements/run.txt -o requirements/server.txt
	$(LOCK) --extra build --extra dev --extra iceberg --extra kafka --extra otel --extra pipeline --extra ship -o requirements/dev.txt
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet packaging/site/requirements.in -o requirements/site.txt
	$(BIN)/uv pip compile --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet tests/fuzz/requirements.in -o requirements/fuzz.txt
	$(LOCK) packaging/requirements.in -c requirements/server.txt -o requirements/release.txt
	$(LOCK) --extra build --extra demo -c requirements/dev.txt -o requirements/demo.txt

quick: $(VENV)/.dev ## the tests that take under two minutes together
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow and not pipeline"

# What no Python package carries comes from Debian's packages, where that is possible.
INSTALL = command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends

browser: ## install the browsers that tests of pages need
	@{ command -v chromium && command -v chromedriver; } > /dev/null || { $(INSTALL) chromium chromium-driver > /dev/null; } || true
	@command -v firefox-esr > /dev/null || { $(INSTALL) firefox-esr > /dev/null; } || true

CLIENT := src/mdserver/web/client
$(CLIENT)/node_modules/.package-lock.json: $(CLIENT)/package.json $(CLIENT)/package-lock.json
	@{ command -v node && command -v npm; } > /dev/null || { $(INSTALL) nodejs npm > /dev/null; } || true
	@if command -v npm > /dev/null; then cd $(CLIENT) && npm ci --silent --no-audit --no-fund && touch node_modules/.package-lock.json; fi

roots: ## install what builds packages, and the clean root in which they are tried
	@{ command -v debootstrap && command -v rpmbuild && command -v systemd-analyze && command -v podman && command -v crun; } > /dev/null \
	|| { $(INSTALL) debootstrap rpm systemd podman crun > /dev/null; } || true

# mkdocs and what it needs have an environment of their own: nothing of the server's needs them.
SITE := build/site-venv
$(SITE)/.done: requirements/site.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/site.txt
	@touch $@

site: $(SITE)/.done ## the documentation as pages to read in a browser, in build/site
	@$(SITE)/bin/python packaging/site/build.py

diagrams: ## draw docs/diagrams anew, which needs Graphviz
	@command -v dot > /dev/null || { $(INSTALL) graphviz > /dev/null; } || true
	$(BIN)/python packaging/site/diagrams.py

# What makes the single file and the list of parts, beside what the server depends on.
RELEASE := build/release-venv
$(RELEASE)/.done: requirements/release.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
	@touch $@

.PHONY: audit fuzz-parsers
audit: $(RELEASE)/.done ## ask a database whether a dependency has a known weakness
	$(RELEASE)/bin/python packaging/audit.py

dist: $(VENV)/.dev $(RELEASE)/.done roots ## what is released, in dist/: packages, a single file, what is in them
	$(BIN)/python packaging/build.py

verify-packages: $(VENV)/.dev $(RELEASE)/.done roots ## the packages in a clean root; minutes, and root's rights
	$(BIN)/python -m pytest -q packaging/tests

# Helm is built from source: its version and sums stand in the Go checksum database.
build/go/helm:
	GOBIN=$(CURDIR)/build/go go install helm.sh/helm/v3/cmd/helm@v3.19.0

.PHONY: verify-chart
verify-chart: $(VENV)/.dev $(RELEASE)/.done build/go/helm ## the container's file and the Helm chart against rules and schemas
	$(BIN)/python -m pytest -q packaging/tests/test_container.py

.PHONY: matrix
matrix: $(VENV)/.dev ## the quick tests on each Python from 3.11 to 3.14 that is installed; minutes
	$(BIN)/python packaging/matrix.py

javascript: $(CLIENT)/node_modules/.package-lock.json ## make what servers serve of the JavaScript client
	@cd $(CLIENT) && npm run --silent bundle

proxies: ## install the proxies that tests run in front of a server
	@{ command -v haproxy && PATH=$$PATH:/usr/sbin command -v nginx; } > /dev/null || { $(INSTALL) nginx-light haproxy > /dev/null; } || true

prometheus: ## install the Prometheus with which tests try metrics and alerts
	@{ command -v promtool; } > /dev/null || { $(INSTALL) prometheus > /dev/null; } || true

networks: ## install what gives each member of a chaos run a network of its own
	@{ command -v ip && command -v nft; } > /dev/null || { $(INSTALL) iproute2 nftables > /dev/null; } || true
	@ls /usr/lib/*/faketime/libfaketime.so.1 > /dev/null 2>&1 || { $(INSTALL) libfaketime > /dev/null; } || true

test: test-pure test-server test-pipeline ## every test but the long ones; installs what they need

test-pure: $(VENV)/.dev ## the tests of core and codec, with their branch coverage
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -q tests/core tests/codec
	$(BIN)/python -m coverage report

test-server: $(VENV)/.dev $(SITE)/.done $(CLIENT)/node_modules/.package-lock.json browser proxies prometheus networks try-jars history ## the tests of all else but the pipeline
	$(BIN)/python -m pytest -q -n $(JOBS) --ignore=tests/core --ignore=tests/codec --ignore=tests/pipeline --ignore=tests/kafka

# One for all, or each JVM of Spark reads its thousands of classes for itself.
build/classes/spark.jsa: $(VENV)/.dev
	$(BIN)/python -m tests.pipeline.class_archive $(CURDIR)/$@

# The archive of classes is made beside the first tests, which are about Kafka and need no Spark.
test-pipeline: $(VENV)/.dev browser try-jars ## the tests of pipeline and Kafka engine, with Spark and a broker
	$(MAKE) --no-print-directory build/classes/spark.jsa & \
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder tests/kafka tests/pipeline -m "not soak"; \
	status=$$?; wait; exit $$status

test-again: ## the tests that failed in the run before, once more, one at a time
	$(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none

.PHONY: test-again pipeline-soak pipeline-chaos
pipeline-soak: $(VENV)/.dev browser try-jars build/classes/spark.jsa ## longer tests of the pipeline: further kills, the demo, the benchmark
	$(BIN)/python -m pytest -q tests/pipeline tests/kafka -m soak

CHAOS_MINUTES ?= 10
pipeline-chaos: $(VENV)/.dev networks ## kills, clock steps, restored and emptied journals: archive = acknowledged (CHAOS_MINUTES=)
	$(BIN)/python -m tests.pipeline.chaos --minutes $(CHAOS_MINUTES)

# A shallow clone lacks the release before this one. Without it, runs of upgrades say that they are left out.
.PHONY: history
history: ## fetch the commit of the release before this one, if it is not there
	@commit=$$(sed -n 's/^COMMIT = "\(.*\)"/\1/p' simulation/chaos/releases.py); \
	git cat-file -e "$$commit" 2> /dev/null \
	|| GIT_TERMINAL_PROMPT=0 timeout 60 git fetch --quiet --depth 1 origin "$$commit" || true

verify: verify-models verify-simulation verify-traces verify-mutation verify-chaos ## the proof's share of CI

verify-models: $(VENV)/.dev ## TLC on the models of the specification and their mutants
	$(BIN)/python -m spec check

verify-simulation: $(VENV)/.dev history ## simulated runs of three levels, what guards refused in them, and deliberate bugs
	$(BIN)/python -m simulation run --seeds 1000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --fresh --seeds 400 --jobs $(JOBS)
	$(BIN)/python -m simulation run --level 2 --seeds 150 --first 5000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --fresh --level 2 --seeds 50 --jobs $(JOBS)
	$(BIN)/python -m simulation run --level 3 --seeds 150 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile half-cut --seeds 100 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile half-cut --level 2 --seeds 50 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile half-cut --level 3 --seeds 10 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile disturbed-start --seeds 100 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile habits --seeds 50 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile wavering --seeds 20 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile put-back --seeds 50 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile lost-records --seeds 60 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile slow-disks --seeds 100 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile standard --seeds 100 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile standard-apart --seeds 60 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile reseeded --seeds 30 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile strays --seeds 30 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile upgrade --seeds 30 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile upgrade-to-the-next --seeds 20 --jobs $(JOBS)
	$(BIN)/python -m simulation mutants --jobs $(JOBS)

verify-traces: $(VENV)/.dev ## traces of simulated runs against the specification, changed ones too
	rm -rf build/traces
	$(BIN)/python -m simulation traces build/traces --runs 100
	$(BIN)/python -m spec traces --spoilt build/traces/*.jsonl

verify-mutation: $(VENV)/.dev ## a tenth of the small bugs, another one with each commit
	$(BIN)/python -m tests.mutation --turn --jobs $(JOBS) --seconds 10 --budget 150 --least 60

mutation: $(VENV)/.dev ## put small bugs in, one at a time, and see what finds each; ten minutes (TENTH=0 to 9 for a part)
	$(BIN)/python -m tests.mutation --jobs $(JOBS) $(if $(TENTH),--tenth $(TENTH))

verify-chaos: $(VENV)/.dev networks ## four minutes of chaos, of many kinds
	$(BIN)/python -m simulation chaos --seconds 60
	$(BIN)/python -m simulation chaos --seconds 30 --only half-cut
	$(BIN)/python -m simulation chaos --profile journal --rounds 3
	$(BIN)/python -m simulation chaos --profile configuration --rounds 4
	$(BIN)/python -m simulation chaos --profile seeds --rounds 4
	$(BIN)/python -m simulation chaos --profile standard --rounds 5
	$(BIN)/python -m simulation chaos --profile tls --rounds 6
	$(BIN)/python -m simulation chaos --profile clocks --rounds 3 --if-possible
	$(BIN)/python -m simulation chaos --profile disks --rounds 2 --if-possible

CHAOS_SECONDS := 3600
.PHONY: verify-chaos-long
verify-chaos-long: $(VENV)/.dev networks history ## an hour of chaos over all profiles; build/chaos/report.html has its timeline
	$(BIN)/python -m pytest -q tests/simulation/soak.py
	$(BIN)/python -m simulation chaos --profile all --seconds $(CHAOS_SECONDS) --report build/chaos/report.html

.PHONY: verify-seeds-long
verify-seeds-long: $(VENV)/.dev history ## 100,000 fresh seeds of level 1, 10,000 each of levels 2 and 3; three to four hours on two cores
	$(BIN)/python -m simulation run --fresh --level 2 --seeds 10000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --fresh --level 3 --seeds 10000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --fresh --seeds 100000 --jobs $(JOBS)

proof: $(VENV)/.dev history ## the long profile of `make verify`: about eight hours on two cores
	$(BIN)/python -m spec check --full
	$(MAKE) verify-seeds-long
	$(BIN)/python -m simulation run --profile half-cut --seeds 3000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile put-back --seeds 1000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile lost-records --seeds 2000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile slow-disks --seeds 1000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile standard --seeds 1000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile standard-apart --seeds 1000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile elastic --seeds 1000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile reseeded --seeds 1000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile strays --seeds 1000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile upgrade --seeds 1000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation run --profile upgrade-to-the-next --seeds 1000 --first 100000 --jobs $(JOBS)
	$(BIN)/python -m simulation explore --seconds 600 --jobs $(JOBS)
	$(BIN)/python -m simulation chaos --seconds 600 --members 4 --only half-cut
	$(BIN)/python -m simulation chaos --profile journal --rounds 50
	$(BIN)/python -m simulation chaos --profile configuration --rounds 44
	$(BIN)/python -m simulation chaos --profile upgrade --rounds 6 --if-possible
	$(BIN)/python -m simulation chaos --profile members --rounds 50
	$(BIN)/python -m simulation chaos --profile seeds --rounds 100
	$(MAKE) verify-chaos-long

MEASURED = $(BIN)/python -m coverage run --append --branch --data-file=build/coverage-simulation \
	--source=src/mdserver/core,src/mdserver/cluster,src/mdserver/client/core -m simulation run --jobs 1 --seeds
.PHONY: coverage-simulation
coverage-simulation: $(VENV)/.dev ## branch coverage of core, cluster and client under the simulator alone; minutes
	mkdir -p build && rm -f build/coverage-simulation
	$(MEASURED) 40
	$(MEASURED) 10 --profile habits
	$(MEASURED) 5 --profile put-back
	$(MEASURED) 5 --profile slow-disks
	$(BIN)/python -m coverage report --data-file=build/coverage-simulation --fail-under=0 \
		--include='src/mdserver/core/*,src/mdserver/cluster/*,src/mdserver/client/core/*' --omit='*/cluster/kafka*'

chaos: $(VENV)/.dev networks ## a minute of kills, pauses and partitions of real processes
	$(BIN)/python -m simulation chaos --seconds 60

# AddressSanitizer has to be in the process first; Python's own allocator would hide faults from it.
NATIVE_TESTS := tests/server/clients/test_sends.py tests/server/clients/test_outbox.py
.PHONY: check-native
check-native: $(VENV)/.dev ## the native code with AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/python hatch_build.py build/native/sanitized -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
	LD_PRELOAD="$$($${CC:-gcc} -print-file-name=libasan.so) $$($${CC:-gcc} -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
	MDSERVER_TESTED_SENDS=build/native/sanitized/_sends.abi3.so $(BIN)/python -m pytest -q $(NATIVE_TESTS)

# Other servers for comparisons: NATS and Centrifuge, which Centrifugo is made of, from Go's module
# proxy, the others from npm's registry.
PEERS := build/bench-peers
build/go/nats-server:
	GOBIN=$(CURDIR)/build/go go install github.com/nats-io/nats-server/v2@v2.14.0

build/go/centrifuge: tests/peers/centrifuge/main.go tests/peers/centrifuge/go.mod
	cd tests/peers/centrifuge && go build -o $(CURDIR)/$@ .

$(PEERS)/node_modules/.package-lock.json: $(wildcard tests/peers/servers/*)
	@{ command -v node && command -v npm; } > /dev/null || { $(INSTALL) nodejs npm > /dev/null; } || true
	mkdir -p $(PEERS) && cp tests/peers/servers/* $(PEERS)
	cd $(PEERS) && npm install --silent --no-audit --no-fund && touch node_modules/.package-lock.json

.PHONY: bench-peers
bench-peers: $(VENV)/.dev build/go/nats-server build/go/centrifuge $(PEERS)/node_modules/.package-lock.json ## the same load on mdserver, NATS, Centrifuge, Socket.IO, an MQTT broker and ws; minutes
	$(BIN)/python -m tests.peers

bench-check: $(VENV)/.dev ## compare costs of publications with docs/performance.json; fails at 10 % more
	$(BIN)/python -m tests.guard

screenshots: $(VENV)/.dev browser ## take the pictures of the dashboard in the docs anew, in a real browser
	$(BIN)/python -m pytest -q tests/browser/test_dashboard.py
	mkdir -p docs/images
	cp build/screenshots/dashboard.png build/screenshots/dashboard-cluster.png docs/images/

bench-web: $(CLIENT)/node_modules/.package-lock.json ## messages a second into the JavaScript client, beside centrifuge and nats.ws
	@npm install --silent --no-save --no-audit --no-fund --prefix build/bench-web centrifuge@5.8.0 nats.ws@1.30.3
	@node --experimental-websocket tests/web/clients.bench.mjs

REPLAYED_SEEDS ?= 500
replay-web: $(VENV)/.dev $(CLIENT)/node_modules/.package-lock.json ## what Python clients did in 500 simulated clusters, done by the JavaScript core
	REPLAYED_SEEDS=$(REPLAYED_SEEDS) $(BIN)/python -m pytest -q tests/web/test_core.py

SOAK_SECONDS ?= 600
soak-web: $(VENV)/.dev browser ## 10,000 messages a second into one page for ten minutes (SOAK_SECONDS=)
	$(BIN)/python -m tests.browser.soak --seconds $(SOAK_SECONDS)

SEEDS ?= 50
soak-workers: $(VENV)/.dev ## workers and members of 50 simulated clusters die at random (SEEDS=)
	SEEDS=$(SEEDS) $(BIN)/python -m pytest -q tests/cluster/test_workers_under_faults.py

FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.dev ## drive a live server with hostile input for ten minutes (FUZZ_SECONDS=, FUZZ_SEED=)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

PARSER_SECONDS ?= 60
$(VENV)/.fuzz: requirements/fuzz.txt $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/fuzz.txt
	@touch $@

fuzz-parsers: $(VENV)/.fuzz ## look for bytes that break a parser, a minute each (PARSER_SECONDS=)
	$(BIN)/python -m tests.fuzz.guided --seconds $(PARSER_SECONDS)

clean: ## remove everything that make made
	rm -rf $(VENV) build dist .coverage .hypothesis .mypy_cache .ruff_cache .import_linter_cache

.PHONY: help jars run cluster dist-client demo pipeline-demo check format docs lock quick browser javascript proxies prometheus networks \
	roots site diagrams dist verify-packages \
	test test-pure test-server test-pipeline \
	verify verify-models verify-simulation verify-traces verify-mutation verify-chaos proof mutation chaos bench-check screenshots bench-web replay-web soak-web soak-workers fuzz clean
