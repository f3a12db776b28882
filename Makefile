# What can be done here; "make" alone lists it. A target's description stands behind ## on its line.
# Works with GNU make from 3.81 on, which is what macOS has.

GO ?= go
PKG ?= ./...

# Each test binary may take this long; it is far more than any needs.
TIMEOUT ?= 20m
SOAKTIMEOUT ?= 1h

# Tests must not be skipped for the want of a program that "make tools" gets.
REQUIRE = STINT_REQUIRE_REDIS=1 STINT_REQUIRE_PROMETHEUS=1

# The linters are pinned in a module of their own, so that the library's go.mod has nothing of them.
TOOL = $(GO) -C internal/tools tool -n

# The benchmarks are a module of their own, so that the library's go.mod has nothing of its peers. Where test, vet and staticcheck
# are for everything they are for these too; where they are for a part they are not.
BENCH = $(if $(filter ./...,$(PKG)),,true ||)

.DEFAULT_GOAL := help
.PHONY: help test soak cover bench lint fmt vet staticcheck imports shellcheck vulncheck tools

help: ## this list
	@echo "usage: make TARGET [PKG=./store]"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

test: tools ## every test, with the race detector, a real Redis and a real Prometheus; installs these by apt-get where they are missing
	$(REQUIRE) $(GO) test -race -count=1 -timeout $(TIMEOUT) $(PKG)
	$(BENCH) $(REQUIRE) $(GO) -C bench test -race -count=1 -timeout $(TIMEOUT) ./...

soak: tools ## the tests at full length and with their real bounds on time, one package at a time; without the race detector
	$(REQUIRE) STINT_SOAK=1 $(GO) test -count=1 -p 1 -timeout $(SOAKTIMEOUT) $(PKG)

cover: tools ## every test but those of bench, without the race detector; writes the coverage to cover.out and prints the total
	$(REQUIRE) $(GO) test -count=1 -timeout $(TIMEOUT) -coverpkg=./... -coverprofile=cover.out $(PKG)
	@$(GO) tool cover -func=cover.out | tail -n 1

bench: tools ## this library beside its peers, on a redis-server of its own; prints a table, writes bench/results.json; ROUNDS=1 is quick
	cd bench && $(GO) run .

lint: fmt vet staticcheck imports shellcheck vulncheck ## everything below; tests nothing

fmt: ## gofmt has nothing to change
	@files=$$(gofmt -l .) && if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi

vet: ## go vet
	$(GO) vet $(PKG)
	$(BENCH) $(GO) -C bench vet ./...

staticcheck: ## staticcheck
	@tool=$$($(TOOL) staticcheck) && echo "staticcheck $(PKG)" && "$$tool" $(PKG) && \
		{ $(BENCH) { cd bench && "$$tool" ./...; }; }

imports: ## imports run one way, and only the runtime starts goroutines (imports_test.go)
	$(GO) test -count=1 -run '^(TestImportsRunOneWay|TestBreachesOfTheRulesAreFound)$$' .

shellcheck: ## the scripts, as far as the machine can check them
	@for f in .ci/*; do bash -n "$$f" || exit 1; done
	@if command -v shellcheck >/dev/null; then shellcheck .ci/*; else echo "shellcheck is not installed: only the syntax of the scripts was checked"; fi

vulncheck: ## govulncheck, where its database can be reached
	@.ci/vulncheck "$$($(TOOL) govulncheck)" $(PKG)

tools: ## installs by apt-get what the tests need and is missing: redis-server 7, prometheus with promtool and, on Linux, a C compiler
	@GO=$(GO) .ci/tools
