# Rackwright: `make demo` shows it, `make test` proves it, `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Everything that images/ builds goes here; tests and demo look for it in the same place.
export OUT ?= $(CURDIR)/target/images
export RACKWRIGHT_IMAGES := $(OUT)
# Cargo profile of the programs that run on this machine, and of the agent in the ramdisk ("dev" builds quicker and
# makes a bigger ramdisk).
PROFILE ?= dev
AGENT_PROFILE ?= ramdisk
# KEEP=1: the demos go on running at their end, until Ctrl-C.
KEEP ?=

TRIPLE := x86_64-unknown-linux-gnu
folder_of = $(if $(filter dev,$(1)),debug,$(1))
AGENT := target/ramdisk/$(TRIPLE)/$(call folder_of,$(AGENT_PROFILE))/rackwright-agent
BIN := target/$(call folder_of,$(PROFILE))
export PATH := $(HOME)/.cargo/bin:$(PATH)
SCRIPTS = images/*.sh images/*/*.sh images/seed/rackwright-seed images/tiny/rc images/tiny/initrd-init images/rdma/init .ci/run $(wildcard tests/*.sh crates/*/tests/*.sh crates/*/*.sh crates/*/*/*.sh)

.PHONY: help
help: ## This list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: deps-demo ## Two real machines from power-off to handed over and back; KEEP=1 leaves the lab running
	@$(MAKE) --no-print-directory -j2 demo-images demo-programs
	KEEP=$(KEEP) $(BIN)/rackwright-demo

# Only what the demo starts. Features are those of the whole workspace: a later `make test` builds nothing of this again.
.PHONY: demo-images demo-programs
demo-images: ramdisk-cloud netboot
	@images/tiny/build.sh
	@images/debian/build.sh slim

demo-programs:
	cargo build --locked --profile $(PROFILE) --workspace --bin rackwrightd --bin rackwright --bin rackwright-lab --bin rackwright-demo

.PHONY: demo-cluster
demo-cluster: deps-cluster build ## Two customers get clusters of 128 simulated machines on the fabric of a real OpenSM; KEEP=1 as above
	KEEP=$(KEEP) $(BIN)/rackwright-demo-cluster

# Images are made beside lints and build: they wait for packages and for one long link of the agent. Programs and tests are built
# at once: by themselves, the programs would be built with other features of the same crates. Each step says how long it took.
took = TIMEFORMAT='test: $(1) took %0lR'; time
.PHONY: test linted-build
test: deps ## Everything: format, lints, licences, all tests, the real machines included
	@$(call took,web console) $(MAKE) --no-print-directory web-check test-provider test-foreign-clients
	@$(call took,lints and build with images) $(MAKE) --no-print-directory -j2 linted-build images
	@$(call took,testing) cargo nextest run --locked --workspace --cargo-profile $(PROFILE)
	@$(call took,testing with dumps of real fabrics) $(MAKE) --no-print-directory $(if $(DUMPS),test-fabrics,without-fabrics)
	@$(call took,testing with OpenSSL) $(MAKE) --no-print-directory test-platform-tls
	@$(call took,fuzzing) $(MAKE) --no-print-directory fuzz FUZZ_SEED=1

linted-build: lint
	@$(call took,building) cargo build --locked --workspace --bins --tests --profile $(PROFILE)

# The tests that speak with a BMC. Features are those of the whole workspace (`--workspace --features`): what is built already is
# not built again with others.
PLATFORM_TLS := --workspace --features rackwright-redfish/platform-tls --test mockups --test bios_mockups --test scripted --test sushy

.PHONY: test-platform-tls
test-platform-tls: deps ## The tests of the BMC client once more, with TLS by the platform's OpenSSL
	cargo nextest run --locked $(PLATFORM_TLS) --cargo-profile $(PROFILE)

# How long `make fuzz` looks, where what it finds of interest is kept, and where its chance begins (0: anew each time).
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 0
FUZZ_CORPUS ?= target/fuzz/corpus

.PHONY: test-attacks attack-images
test-attacks: deps attack-images ## The attacks of docs/security.md against a running rackwrightd (part of `make test`, with fewer malformed inputs)
	cargo build --locked --workspace --bins --profile $(PROFILE)
	RACKWRIGHT_MALFORMED_INPUTS=100000 \
	  cargo nextest run --locked -p rackwright-tests --test attacks --test variants --cargo-profile $(PROFILE) \
	  -E 'binary(attacks) | test(a_detached_namespace_is_erased_and_named)'

# What the real machines of these tests boot, and the image that they get.
attack-images: ramdisk-cloud netboot
	@images/tiny/build.sh

.PHONY: test-spread
test-spread: deps ramdisk-cloud netboot ## Four emulated machines write one image through each other, and one is killed; not a part of `make test`
	@images/tiny/build.sh
	cargo build --locked --workspace --bins --profile $(PROFILE)
	cargo nextest run --locked --workspace --cargo-profile $(PROFILE) --ignore-default-filter \
	  -E 'package(rackwright-tests) & binary(spread)'

# The folder of dumps of real fabrics, *.ibnetdiscover: they are no part of the repository.
FABRICS ?= $(RACKWRIGHT_FABRICS)
DUMPS = $(if $(FABRICS),$(wildcard $(FABRICS)/*.ibnetdiscover))

.PHONY: test-fabrics without-fabrics
test-fabrics: deps ## The tests that read dumps of real fabrics, FABRICS=FOLDER (part of `make test` if RACKWRIGHT_FABRICS is set)
	@test -n '$(DUMPS)' || { echo 'make test-fabrics: no *.ibnetdiscover in FABRICS="$(FABRICS)"' >&2; exit 2; }
	RACKWRIGHT_FABRICS=$(abspath $(FABRICS)) cargo nextest run --locked --workspace --cargo-profile $(PROFILE) \
	  --run-ignored only -E 'binary(/^(fabric_dump|fabric_structure|irregular_dumps)$$/)'

without-fabrics:
	@echo 'test: NOT RUN: the 3 tests of `make test-fabrics`: RACKWRIGHT_FABRICS names no folder with *.ibnetdiscover' >&2

# Seeds of `make simulation`. `make test` runs 150 of the nodes and 40 of the clusters.
SEEDS ?= 2000

.PHONY: simulation
simulation: deps ## Nodes and clusters in simulation, with a kill at every commit and effect, from SEEDS (2,000) seeds each
	RACKWRIGHT_SEEDS=$(SEEDS) cargo nextest run --locked --workspace --lib --bins --cargo-profile $(PROFILE) -E 'test(/^simulation::/)'

.PHONY: fuzz
fuzz: deps ## Looks for inputs that a reader cannot bear (packets, images, site files, BMC answers), for FUZZ_SECONDS (60)
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/crates/fuzz/rustc-with-coverage.sh \
	  cargo build --locked --workspace --features rackwright-fuzz/libfuzzer --bin fuzz-inputs
	@mkdir -p $(FUZZ_CORPUS)
	target/debug/fuzz-inputs -max_total_time=$(FUZZ_SECONDS) -seed=$(FUZZ_SEED) -timeout=10 -rss_limit_mb=1024 -max_len=8192 \
	  -artifact_prefix=target/fuzz/ -print_final_stats=1 $(FUZZ_CORPUS) crates/fuzz/corpus

# NAME:PATH of pages; FIRST is the first node. README's pictures are of a hall of 300 nodes.
README_PAGES := fleet:/ node:/nodes/FIRST racks:/racks fabric:/fabric
PAGES := $(README_PAGES) nodes:/nodes map:/nodes?view=map power:/power clusters:/clusters order:/clusters/new \
  activity:/activity images:/images discovery:/discovery usage:/usage members:/members sessions:/sessions audit:/audit
CUSTOMER_PAGES := home:/ nodes:/nodes clusters:/clusters activity:/activity images:/images usage:/usage members:/members
SCREENSHOTS := target/screenshots
TAKE := node crates/web/ui/pictures.mjs

.PHONY: pictures screenshots
pictures: deps ## The pictures of the web console in README, with an invented hall: docs/pictures
	$(TAKE) --out docs/pictures $(README_PAGES)

screenshots: deps ## Pictures of each page with 3, 300 and 10,000 nodes, light, for a phone, and a customer's: target/screenshots
	@for nodes in 3 300 10000; do $(TAKE) --out $(SCREENSHOTS)/$$nodes --nodes $$nodes $(PAGES); done
	@$(TAKE) --out $(SCREENSHOTS)/light --theme light $(PAGES)
	@$(TAKE) --out $(SCREENSHOTS)/phone --width 400 --height 850 $(PAGES)
	@$(TAKE) --out $(SCREENSHOTS)/customer --role customer-admin $(CUSTOMER_PAGES)

.PHONY: web web-check
web: ## Builds the web console: crates/web/dist from crates/web/ui (needs Node.js 20 and npm)
	cd crates/web/ui && npm ci --no-audit --no-fund && npm run --silent check && npm run --silent build

web-check: ## Whether crates/web/dist is what `make web` builds
	@$(MAKE) --no-print-directory web
	@git diff --exit-code --stat -- crates/web/dist || { echo "crates/web/dist is not what \`make web\` builds: commit it"; exit 1; }

.PHONY: test-provider
test-provider: ## Installs the OpenID Connect provider of the tests, from its lock file (needs Node.js 20 and npm)
	cd tests/oidc-provider && npm ci --no-audit --no-fund --silent

.PHONY: test-foreign-clients
test-foreign-clients: ## Installs a client of the API that is not ours, from its lock file (needs Node.js 20 and npm)
	cd tests/foreign-clients && npm ci --no-audit --no-fund --silent

.PHONY: check
check: tools ## Before a commit: format, clippy, unit tests, checks of docs and structure; no machine, no database server
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo nextest run --locked --workspace --lib --test docs --test crate_graph --test floors --test size_budget -E 'not test(/^simulation::/)'

.PHONY: lint
lint: tools ## Format, clippy, licences and sources of the dependencies, shell scripts
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked $(PLATFORM_TLS) -- -D warnings
	cargo deny --locked --log-level error check --hide-inclusion-graph licenses bans sources
	cargo deny --locked --log-level error --features rackwright-redfish/platform-tls check --hide-inclusion-graph licenses bans sources
	shellcheck -x $(SCRIPTS)

.PHONY: audit
audit: tools ## Known vulnerabilities of the dependencies (fetches the advisory database)
	cargo deny --locked check advisories

.PHONY: build
build: ## Control plane, CLI and lab, to target/
	cargo build --locked --profile $(PROFILE) --workspace --bins

.PHONY: deps
deps: ## Installs what is missing from Debian's packages, and says what
	@images/deps.sh

# What one target needs, and no more: on a newcomer's machine the demo installs no database and no web server.
.PHONY: deps-demo deps-cluster deps-bench
deps-demo:
	@images/deps.sh build images lab

deps-cluster:
	@images/deps.sh build fabric

deps-bench:
	@images/deps.sh build bench

# cargo-deny runs for seconds: without optimisation it is built in less time than an optimised run saves.
.PHONY: tools
tools: ## Installs the two cargo tools that the tests need: cargo-nextest and cargo-deny
	@command -v cargo-nextest >/dev/null || { echo 'tools: installing cargo-nextest (runs the tests)' >&2; cargo install --locked cargo-nextest; }
	@command -v cargo-deny >/dev/null || { echo 'tools: installing cargo-deny (licences and sources)' >&2; cargo install --locked --debug cargo-deny; }

.PHONY: images
images: ramdisk netboot traffic probe ## Ramdisk, boot programs, TinyOS and two Debian images, from Debian's packages
	@images/rdma/build.sh
	@images/tiny/build.sh
	@images/debian/build.sh slim
	@images/debian/build.sh cloud-init

.PHONY: ramdisk ramdisk-cloud
ramdisk: ramdisk-cloud ## Kernel and ramdisk with the agent: for virtual machines and for real servers
	@images/ramdisk/build.sh generic $(AGENT)

ramdisk-cloud: agent
	@images/ramdisk/build.sh cloud $(AGENT)

.PHONY: netboot
netboot: ## The boot programs that firmware loads: iPXE, shim, GRUB
	@images/netboot/build.sh

# Built for the target by name, so that the flags do not reach build scripts and procedural macros.
.PHONY: agent
agent: ## The statically linked agent
	RUSTFLAGS='-C target-feature=+crt-static' cargo build --locked --profile $(AGENT_PROFILE) -p rackwright-agent --bin rackwright-agent --target $(TRIPLE) --target-dir target/ramdisk

# Twice: the static program carries the dynamic one, which can load libibverbs (crates/traffic/src/embedded.rs).
.PHONY: traffic
traffic: ## The statically linked program that measures traffic between machines, by RDMA or TCP
	cargo build --locked --profile $(AGENT_PROFILE) -p rackwright-traffic --bin rackwright-traffic --target $(TRIPLE) --target-dir target/traffic-rdma
	RACKWRIGHT_TRAFFIC_RDMA=$(CURDIR)/target/traffic-rdma/$(TRIPLE)/$(call folder_of,$(AGENT_PROFILE))/rackwright-traffic \
	RUSTFLAGS='-C target-feature=+crt-static' cargo build --locked --profile $(AGENT_PROFILE) -p rackwright-traffic --bin rackwright-traffic --target $(TRIPLE) --target-dir target/ramdisk
	@install -D -m 755 $(dir $(AGENT))rackwright-traffic $(OUT)/rackwright-traffic

# Twice: the static program carries the dynamic one, which can load the library of NVIDIA's driver (crates/probe/src/embedded.rs).
.PHONY: probe
probe: ## The statically linked program that reads the hardware of installed systems
	cargo build --locked --profile $(AGENT_PROFILE) -p rackwright-probe --bin rackwright-probe --target $(TRIPLE) --target-dir target/traffic-rdma
	RACKWRIGHT_PROBE_DYNAMIC=$(CURDIR)/target/traffic-rdma/$(TRIPLE)/$(call folder_of,$(AGENT_PROFILE))/rackwright-probe \
	RUSTFLAGS='-C target-feature=+crt-static' cargo build --locked --profile $(AGENT_PROFILE) -p rackwright-probe --bin rackwright-probe --target $(TRIPLE) --target-dir target/ramdisk
	@install -D -m 755 $(dir $(AGENT))rackwright-probe $(OUT)/rackwright-probe

.PHONY: test-images
test-images: images ## Every image under every firmware, with and without a seed
	images/selftest.sh

.PHONY: fresh
fresh: ## demo and test in a fresh clone on a minimal Debian with only Rust (WHO=root: as root); takes about an hour
	tests/fresh.sh demo test

.PHONY: bench-image
bench-image: deps-bench ## Our image writer against dd, qemu-img and bmaptool; prints JSON
	@cargo build --locked --release -p rackwright-image --bin rackwright-bench-image >&2
	@target/release/rackwright-bench-image run

.PHONY: bench-store
bench-store: deps-bench ## Changes a second of the embedded database, against a COMMIT for each; prints JSON
	@cargo bench --locked --quiet -p rackwright-store --bench commits

# How many machines `make chaos` deploys.
MACHINES ?= 500

.PHONY: chaos
chaos: deps ## Kill replicas every few seconds, and PostgreSQL once, while MACHINES simulated machines deploy
	@cargo build --locked --workspace --bins
	@RACKWRIGHT_CHAOS_MACHINES=$(MACHINES) cargo nextest run --locked -p rackwright-tests \
	  -E 'test(many_machines_are_deployed_though_replicas_are_killed)' --no-capture

# Machines of each run of bench-fleet, and further arguments of its program: FLEET_ARGS='--profile dgx-h100'.
NODES ?= 1000 10000
FLEET_ARGS ?=

.PHONY: bench-fleet
bench-fleet: deps-bench release ## NODES simulated machines through their whole life, 1,000 and 10,000 if not said; prints JSON
	@for nodes in $(NODES); do target/release/rackwright-bench fleet --nodes $$nodes $(FLEET_ARGS); done

# Arguments of bench-api: API_ARGS='--calls 20000'.
API_ARGS ?=

.PHONY: bench-api
bench-api: deps-bench release ## A call by gRPC, Connect and REST on one connection; prints JSON
	@target/release/rackwright-bench api $(API_ARGS)

# Arguments of bench-console: CONSOLE_ARGS='--nodes 1000 --many-nodes 10000 --consoles 100'.
CONSOLE_ARGS ?=

.PHONY: bench-console
bench-console: deps-bench release ## The web console in Chromium with 10,000 and 100,000 nodes, and 500 idle consoles; prints JSON
	@target/release/rackwright-bench console $(CONSOLE_ARGS)

# Arguments of bench-fanout-sim: FANOUT_ARGS='--agents 1024 --cases plain,die'.
FANOUT_ARGS ?=

.PHONY: bench-fanout-sim
bench-fanout-sim: deps-bench ## The spread of an image among 64, 1,024 and 10,000 simulated agents, and its picture; prints JSON
	@cargo build --locked --release -p rackwright-fanout --bin rackwright-bench-fanout >&2
	@target/release/rackwright-bench-fanout $(FANOUT_ARGS)

# Arguments of bench-fanout: FANOUT_BENCH_ARGS='--agents 8 --cases together,killed'.
FANOUT_BENCH_ARGS ?=

.PHONY: bench-fanout
bench-fanout: deps-bench ## 64 agents take an image in network namespaces, beside unicast, nginx and BitTorrent; prints JSON
	@cargo build --locked --release -p rackwright-bench >&2
	@target/release/rackwright-bench fanout $(FANOUT_BENCH_ARGS)

# Arguments of bench-placement: PLACEMENT_ARGS='validation plan', 'import single', 'latency --pods 98', or 'trace --days 30'.
PLACEMENT_ARGS ?=

.PHONY: bench-placement
bench-placement: deps-bench ## Where clusters go: check, import and decisions for 100,000 nodes, and a month's utilisation; prints JSON
	@cargo build --locked --release -p rackwright-planner -p rackwright-cli --bin rackwright-bench-placement --bin rackwright >&2
	@target/release/rackwright-bench-placement $(PLACEMENT_ARGS)

.PHONY: bench-ironic
bench-ironic: deps release ## The same for 50 nodes beside OpenStack Ironic (RACKWRIGHT_PEERS: see tests/bench-ironic.sh)
	@tests/bench-ironic.sh

.PHONY: bench-redfish
bench-redfish: deps-bench ## Walks and power cycles of simulated BMCs by our Redfish client and by sushy; prints JSON
	@cargo build --locked --release -p rackwright-sim -p rackwright-redfish --bins >&2
	@tests/bench-redfish.sh

.PHONY: release
release:
	@cargo build --locked --release -p rackwright-daemon -p rackwright-bench -p rackwright-sim --bins >&2

.PHONY: clean-images
clean-images: ## Removes what images/ built and downloaded
	rm -rf "$(OUT)" 2>/dev/null || sudo rm -rf "$(OUT)"
