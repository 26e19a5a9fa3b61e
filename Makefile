# Bare `make` prints the targets. Needs Go and make; the race detector also
# needs a C compiler. Variables: make fuzz FUZZTIME=5m PKG=./leaderlease/...

GO       ?= go
PKG      ?= work
SEEDS    ?= 200
FIRST    ?= 1
HOURS    ?=
PROCS    ?= 0
FOR      ?=
SUITES   ?=
PATCHED  ?=
WITHOUT  ?=
CONTROL  ?=
BEFORE   ?=
ONLY     ?=
SUITES   ?=
GENERATED ?= 60
SEED     ?= 1
FUZZTIME ?= 20s
BENCH    ?= .
COUNT    ?= 6
BASE     ?=
STATES   ?= 10000000
DEEPER   ?= 2

# Developer tools have their own module, so that go.mod stays short. The first
# use builds them (golangci-lint takes about two minutes). "work" is every package
# of the modules that go.work joins.
TOOL = $$($(GO) -C tools tool -n $(1))

# The modules' directories, for tools that know no "work".
DIRS = $(addsuffix /...,$(shell $(GO) list -m -f '{{.Dir}}'))

.PHONY: help
help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

# Three tiers: make test for each change, make verify for each landing, make proof for a release.
# .ci/run runs check, test and verify. CONTRIBUTING.md has their times.
.PHONY: check
check: fmt-check vet lint api ## before each push: format, vet, lint, public names

# Long tests (simulations, searches, every byte of a log, hours of virtual time) run a short form here,
# by testing.Short. make check vets. In these packages one goroutine computes or simulates, and the race detector
# would make that 5 to 14 times slower; make race has them.
SINGLE = (internal/(lint|mutants|waltest)|leaderlease/(core|detector|leasetest(/rules|/sim)?))$$

# Four packages run at once, since members on real sockets mostly wait.
.PHONY: test
test: ## before each push: all packages, with the race detector where goroutines meet, 3 to 5 minutes on 2 cores
	@$(GO) list $(PKG) > /dev/null
	$(GO) list $(PKG) | grep -E '$(SINGLE)' | xargs -r $(GO) test -short -vet=off -timeout 15m
	$(GO) list $(PKG) | grep -vE '$(SINGLE)' | xargs -r $(GO) test -race -short -vet=off -p 4 -timeout 15m

SIMULATE = $(GO) test ./leaderlease/leasetest/sim -run '^TestSimulation$$' -count 1 -timeout 0 -v -args -procs=$(PROCS)

# Programs and tests are built as a release is, so nothing is compiled twice, and kvnode/e2e
# runs what users run.
AS_RELEASED = CGO_ENABLED=0 GOFLAGS="$$($(GO) env GOFLAGS) -trimpath"

# The tests compute while the real processes of kvnode/e2e, a module of its own, mostly wait. Beside other work
# they may take an hour.
.PHONY: verify
verify: ## before a landing: long tests, the standard simulation and real processes, 15 minutes
	@export $(AS_RELEASED); \
	$(MAKE) --no-print-directory long & long=$$!; \
	(cd kvnode/e2e && $(GO) test -timeout 30m ./...); e2e=$$?; \
	wait $$long && exit $$e2e

# Packages with a long form of a test. One goroutine simulates or searches, so the race detector
# would only slow it down.
LONG = $$(grep -rl --include='*_test.go' 'testing\.Short()' cmd internal kvnode leaderlease raftwal | \
	grep -v -e '^kvnode/e2e/' -e '^leaderlease/leasetest/sim/' | sed 's|/[^/]*$$||; s|^|./|' | sort -u)

.PHONY: long
long:
	$(SIMULATE)
	$(GO) test -vet=off -timeout 1h ./leaderlease/leasetest/sim -skip '^TestSimulation$$'
	$(GO) test -vet=off -timeout 1h $(LONG)

.PHONY: proof
proof: ## for a release: all that takes hours, a step at a time; goes on where it was stopped; results in bench/out/proof; ONLY=chaos for one
	tools/proof.sh $(ONLY)

.PHONY: race
race: ## all tests, long forms too, under the race detector, twice and shuffled, an hour
	$(GO) test -race -count 2 -shuffle on -timeout 2h $(PKG)

.PHONY: sim
sim: ## long simulations: SEEDS=200 from FIRST=1 on, or HOURS= of simulated time, in PROCS= processes, CONTROL=proof to see it find something; if stopped it goes on where it was, unless code has changed
	@mkdir -p bench/out
	$(SIMULATE) -keep=$(CURDIR)/bench/out -first=$(FIRST) -seeds=$(SEEDS) $(if $(HOURS),-hours=$(HOURS)) $(if $(CONTROL),-control=$(CONTROL))
	$(SIMULATE) -keep=$(CURDIR)/bench/out -raft -first=$(FIRST) -seeds=$(SEEDS)

# The real core.Guard and core.Lease under every schedule of a small group, and the real
# Lease and raft under every script of a few steps: docs/explorer.md.
.PHONY: explore
explore: ## every schedule of a small group, STATES=10000000 of each search, and scripts DEEPER=2 steps longer, about 40 minutes
	$(GO) test ./leaderlease/core -run '^TestExplore$$' -count 1 -timeout 0 -v -args -explore.states=$(STATES)
	$(GO) test ./leaderlease/leasetest -run '^TestExplore$$' -count 1 -timeout 0 -v -args -explore.deeper=$(DEEPER)
	$(GO) test ./leaderlease/leasetest -run '^TestExploreSchedules$$' -count 1 -timeout 0 -v -args -explore.deviations=2

.PHONY: redlock
redlock: ## locks by redlock and ioredis from npm at kvnode redis, while the leader is killed and paused; skipped without node
	cd kvnode/e2e && $(GO) test -run '^TestRedlock$$' -count 1 -v . -args -npm

.PHONY: redis-suite
redis-suite: ## Redis' own tests at a gateway at PORT=6379 of this machine; REDIS= is the source of Redis 7.0, which it changes
	kvnode/redis/testdata/redis-suite.sh $(abspath $(REDIS)) $(or $(PORT),6379)

.PHONY: redis-figures
redis-figures: ## kvnode redis beside redis-server by Debian's redis-benchmark and by redsync, REQUESTS=200000 a run, TURNS=3, some 15 minutes
	@mkdir -p bench/out
	cd kvnode/e2e && $(GO) test -run '^TestRedisFigures$$' -count 1 -v -timeout 2h -artifacts -outputdir $(CURDIR)/bench/out . -args -figures=$(or $(REQUESTS),200000) -turns=$(or $(TURNS),3)

.PHONY: floods
floods: ## hostile clients of HTTP/2 at the leader's port, kvnode beside etcd, about 7 minutes
	cd kvnode/e2e && $(GO) test -run '^TestFloods$$' -count 1 -v -timeout 30m . -args -slow -servers=kvnode,etcd

.PHONY: chaos
chaos: ## real processes killed, paused, flooded, set back, their disks full, under load, for FOR=6m; histories are judged
	cd kvnode/e2e && $(GO) test -run '^TestChaos$$' -count 1 -v -timeout 0 . -args -slow -for=$(or $(FOR),6m)

.PHONY: canary
canary: ## three members with kvnode's own flags and few clients for FOR=1h: there should be no election, and the lease held nearly always; BESIDE='stress-ng --cpu 0' keeps the machine busy
	cd kvnode/e2e && $(GO) test -run '^TestCanary$$' -count 1 -v -timeout 0 . -args -canary=$(or $(FOR),1h)$(if $(BESIDE), -beside='$(BESIDE)')

# FORMER is a commit. Its kvnode is built from what it had.
ROLLING = $(or $(TMPDIR),/tmp)/rolling-former

.PHONY: rolling
rolling: ## rolling restarts under requests of which none may fail; FORMER=commit: from that version to this one, back, and on again
	$(if $(FORMER),rm -rf $(ROLLING) && mkdir -p $(ROLLING) && git archive $(FORMER) | tar -x -C $(ROLLING) && $(GO) build -C $(ROLLING) -o kvnode.former ./cmd/kvnode)
	cd kvnode/e2e && $(GO) test -run '^TestRollingRestart' -count 1 -v -timeout 15m . -args -slow $(if $(FORMER),-former=$(abspath $(ROLLING))/kvnode.former)

.PHONY: kvnode-seeds
kvnode-seeds: ## whole members in virtual time under schedules of faults: SEEDS=200 from FIRST=1 on, each twice with AGAIN=1
	GOMAXPROCS=1 $(GO) test ./kvnode -run '^TestSeeds$$' -count 1 -timeout 0 -v -args -first=$(FIRST) -seeds=$(SEEDS) $(if $(AGAIN),-again)

.PHONY: raftsim
raftsim: ## bare RawNodes alone: SEEDS=200 from FIRST=1 on, or HOURS= of simulated time, WITHOUT=HoldVotes to see it find something
	$(SIMULATE) -raft -first=$(FIRST) -seeds=$(SEEDS) $(if $(HOURS),-hours=$(HOURS)) $(if $(WITHOUT),-without=$(WITHOUT))

.PHONY: mutants
mutants: ## plant each bug of internal/mutants and see it caught, then GENERATED=60 made by operators, chosen by SEED=1
	$(GO) run ./internal/mutants
	$(GO) run ./internal/mutants -generated -n $(GENERATED) -seed $(SEED)

# contrib/raftexample is a module of its own, too: docs/embedding.md, done by a test.
.PHONY: contrib
contrib: ## the lease in etcd's raftexample, as docs/embedding.md has it: patched, built, run; a minute
	cd contrib/raftexample && $(GO) test -count 1 -v -timeout 15m ./...

.PHONY: unauthenticated
unauthenticated: ## 10,000 silent connections and 1,000 failing handshakes a second at the ports of three members; BEFORE=kvnode to compare with
	cd kvnode/e2e && $(GO) test -run '^TestUnauthenticated$$' -count 1 -timeout 20m -v . -args -silent=10000 -failing=1000 -flood=8s $(if $(BEFORE),-before=$(abspath $(BEFORE)))

# A module of its own, which takes etcd's tests from the module proxy.
.PHONY: etcd-suites
etcd-suites: ## etcd's own tests against kvnode, 54 minutes on 2 cores: passed, failed with the known reason, failed; ONLY=regexp
	cd kvnode/etcdsuites && $(GO) test . && $(GO) run . $(if $(ONLY),-only '$(ONLY)') $(if $(SUITES),-suites $(SUITES))

.PHONY: robustness
robustness: ## etcd's robustness tests against kvnode, ROUNDS=20, a minute each: faults under load, judged by etcd's model and kvnode's log
	cd kvnode/etcdsuites && $(GO) test . && $(GO) run . -suites robustness -only Exploratory -count $(or $(ROUNDS),20)

.PHONY: etcd-suites-fastkv
etcd-suites-fastkv: ## those of them whose clients are Go's, with each client sending by kvnode/fastkv; ONLY=regexp
	cd kvnode/etcdsuites && $(GO) test . && $(GO) run . -fastkv $(if $(ONLY),-only '$(ONLY)') $(if $(SUITES),-suites $(SUITES))

.PHONY: fuzz
fuzz: ## run each fuzz target of PKG for FUZZTIME=20s
	@list=$$($(GO) test -list '^Fuzz' $(PKG)) || { echo "$$list"; exit 1; }; \
	echo "$$list" | awk '/^Fuzz/ { t[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, t[i]; n = 0 }' | \
	while read -r pkg target; do \
		echo "== $$pkg $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null || exit 1; \
	done

# etcd, the other side of leasebench, is built from its own module.
ETCD = $(or $(TMPDIR),/tmp)/leasebench-etcd

.PHONY: bench
bench: ## leasebench, about a minute, with its report in bench/out
	$(GO) run ./cmd/leasebench all --quick

.PHONY: bench-full
bench-full: bench-etcd ## all of leasebench but size beside etcd, about half an hour
	$(GO) run ./cmd/leasebench all --start etcd=$(ETCD)

.PHONY: bench-size
bench-size: bench-etcd ## memory, stalls and scans at a million keys beside etcd, about six minutes; QUICK=1: 200,000 keys, two minutes
	$(GO) run ./cmd/leasebench size --start etcd=$(ETCD) --out bench/out $(if $(QUICK),--quick)

.PHONY: bench-failover
bench-failover: bench-etcd ## how long reads and writes are away when leaders die in seven ways, beside etcd, 20 rounds in half an hour; QUICK=1: two rounds; ROUNDS=, MEMBERS=5, TLS=1, SUPERVISE=1; as root for all seven
	$(GO) run ./cmd/leasebench failover --start etcd=$(ETCD) --out bench/out $(if $(QUICK),--quick) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(MEMBERS),--members $(MEMBERS)) $(if $(TLS),--tls) $(if $(SUPERVISE),--supervise)

.PHONY: bench-tool
bench-tool: bench-etcd ## kvnode, and PATCHED= etcd of contrib-etcd, and with AGAIN=1 etcd once more, against etcd by etcd's own benchmark tool in one alternated run, ten minutes (needs python3); ROUNDS=5; PINNED=1: servers on one processor, the tool on another
	$(GO) build -C bench/etcd -o $(ETCD)-tool go.etcd.io/etcd/v3/tools/benchmark
	$(GO) build -C kvnode/e2e -o $(ETCD)-ctl go.etcd.io/etcd/etcdctl/v3
	$(GO) build -o $(ETCD)-kvnode ./cmd/kvnode
	python3 bench/etcd/tool.py --etcd $(ETCD) --kvnode $(ETCD)-kvnode --tool $(ETCD)-tool --etcdctl $(ETCD)-ctl $(if $(PATCHED),--patched $(PATCHED)) $(if $(AGAIN),--again) $(if $(PINNED),--pinned) $(if $(ROUNDS),--rounds $(ROUNDS))

.PHONY: bench-etcd
bench-etcd:
	$(GO) build -C bench/etcd -o $(ETCD) .

# SUITES= is a regular expression for etcd's integration tests: '.' is all, 15 minutes.
CONTRIB = $(or $(TMPDIR),/tmp)/contrib-etcd

.PHONY: contrib-etcd
contrib-etcd: ## etcd 3.7 with the leader lease: patch, build, kills, pauses and the gate turned off for CHAOS=5m, or once; SUITES=TestV3 for etcd's own tests
	$(GO) run ./contrib/etcd build $(CONTRIB)
	cd kvnode/e2e && $(GO) test -run '^TestChaos$$' -count 1 -v -timeout 0 . -args -servers=etcd -etcd=$(CONTRIB)/etcd-lease -stock=$(CONTRIB)/etcd-stock $(if $(CHAOS),-for=$(CHAOS))
	$(if $(SUITES),$(GO) run ./contrib/etcd suites -run '$(SUITES)' $(CONTRIB))

.PHONY: contrib-swarmkit
contrib-swarmkit: ## Docker's swarm manager with the leader lease: patch, build, linearizable reads through ROUNDS=30 faults, with controls; SUITES=. for its own tests, BENCH=6 for rates
	$(GO) run ./contrib/swarmkit $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(SUITES),-suites '$(SUITES)') $(if $(filter-out .,$(BENCH)),-bench $(BENCH)) $(or $(TMPDIR),/tmp)/contrib-swarmkit

# The first lines of a result are configuration in the benchmark format, so
# that a file says by itself where it comes from; benchstat ignores them.
.PHONY: bench-go
bench-go: ## Go benchmarks (BENCH=regexp COUNT=6) into bench/out, compared with BASE=file
	@mkdir -p bench/out
	@out=bench/out/$$(date -u +%Y%m%dT%H%M%SZ).txt; \
	{ \
		echo "commit: $$(git describe --always --dirty 2>/dev/null || echo unknown)"; \
		echo "toolchain: $$($(GO) version)"; \
		echo "machine: $$(uname -srm), $$(getconf _NPROCESSORS_ONLN) cpus"; \
		echo 'command: make bench-go PKG=$(PKG) BENCH=$(BENCH) COUNT=$(COUNT)'; \
	} >$$out; \
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 0 $(PKG) >>$$out || { cat $$out; exit 1; }; \
	$(call TOOL,benchstat) -ignore commit,toolchain,machine,command $(BASE) $$out; \
	echo "raw output: $$out"

.PHONY: demo
demo: ## cut a leader off 500 times and count the stale reads, with and without the library
	@echo "building the demo (a minute or two the first time)"
	@$(GO) run ./cmd/leasebench stale

.PHONY: story
story: ## thirty seconds with a kvnode cluster: pause, fail-over, restart, transfer, verdict; traces and logs stay in bin/story
	@echo "building kvnode (a minute or two the first time)"
	@$(GO) build -o bin/ ./cmd/kvnode
	@rm -rf bin/story
	@bin/kvnode demo --story --dir bin/story

.PHONY: vet
vet:
	$(GO) vet $(PKG)

.PHONY: lint
lint: ## golangci-lint with .golangci.yaml
	$(call TOOL,golangci-lint) run $(DIRS)

# The generator, its compiler and its plugins are tools/proto, a module of their
# own.
.PHONY: sizes
sizes: ## how large the repository is, its ceilings, and the goals (internal/lint); LOWER=1: lower the ceilings to that
	@$(GO) test ./internal/lint -run '^TestSizes$$' -count 1 -v -args $(if $(LOWER),-lower) | grep -v '^=== \|^---'

.PHONY: api
api: ## public names against those of the library's last release
	@tools/api/compare.sh

.PHONY: generate
generate: ## Go code of the .proto files taken from etcd; changes nothing if they have not changed
	$(GO) run -C tools/proto .

.PHONY: release
release: ## make release VERSION=v0.1.0, the tag of the commit: archives of kvnode and leasebench for six platforms, with lists of modules and sums, in dist
	$(GO) run ./internal/release $(VERSION) dist

.PHONY: tidy
tidy: ## go mod tidy in each module, as if all were published
	tools/tidy.sh

.PHONY: fmt
fmt: ## rewrite: gofumpt and go fix
	$(call TOOL,gofumpt) -l -w .
	$(GO) fix $(PKG)

.PHONY: fmt-check
fmt-check:
	@out=$$($(call TOOL,gofumpt) -l .) || exit 1; \
	test -z "$$out" || { echo "not formatted, run make fmt:"; echo "$$out"; exit 1; }
	$(GO) fix -diff $(PKG)

.PHONY: alerts
alerts: ## the shipped alerts against made-up series, with promtool (Debian: prometheus)
	promtool check rules deploy/prometheus/kvnode.rules.yaml
	promtool test rules deploy/prometheus/*.test.yaml
