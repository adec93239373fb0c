# Writ. `make help` lists the targets. Everything works offline but for the package registries (Go modules, npm).

SHELL      := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BUF      := tools/buf/node_modules/.bin/buf
PEERS    := .cache/npm-peers
MODULES  := $(shell go list -m -f '{{.Dir}}' 2>/dev/null)
BIN      := bin
GOFLAGS_TEST ?= -p 2 -timeout 15m
# Where a package's locks or goroutines carry the correctness, the race detector runs in `make test` too.
RACE     := ./internal/sqlitedb/... ./internal/auth/... ./gateway-svc/... ./evidence-svc/internal/... ./permission-svc/internal/...

export WRIT_TEST_PEERS := $(CURDIR)/$(PEERS)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: build
build: ## build the writ command and the services into bin/
	@mkdir -p $(BIN)
	go build -o $(BIN)/ ./cmd/writ ./registry-svc/cmd/registry-svc ./permission-svc/cmd/permission-svc ./mcp-host-svc/cmd/mcp-host-svc \
	  ./exec-svc/cmd/exec-svc ./evidence-svc/cmd/evidence-svc ./gateway-svc/cmd/gateway-svc ./examples/echo-server ./examples/hostile-server

$(BUF): tools/buf/package.json tools/buf/package-lock.json
	cd tools/buf && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(PEERS)/.installed: tools/npm/package.json tools/npm/package-lock.json
	@mkdir -p $(PEERS)
	cp tools/npm/package.json tools/npm/package-lock.json $(PEERS)/
	cd $(PEERS) && npm install --no-audit --no-fund --loglevel=error --ignore-scripts --omit=optional
	@touch $@

.PHONY: tools
tools: $(BUF) $(PEERS)/.installed ## install what the tests need from the npm registry

.PHONY: system
system: ## install the few system programs that the tests use
	tools/system.sh

.PHONY: gen
gen: $(BUF) ## generate the clients from the contracts
	$(BUF) format -w --path proto/writ
	rm -rf gen/go/writ
	$(BUF) generate

.PHONY: gen-check
gen-check: $(BUF) ## fail when the generated clients are not those of the contracts
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; $(BUF) generate -o "$$out"; diff -r "$$out/gen/go/writ" gen/go/writ \
	  || { echo 'gen/ is not current: run `make gen` and commit'; exit 1; }

.PHONY: proto-image
proto-image: $(BUF) ## record the contracts that the next change is compared with
	$(BUF) build proto --path proto/writ --exclude-source-info -o proto/image.binpb

.PHONY: lint
lint: $(BUF) ## lint and format of contracts and Go; breaking changes are advisory until the first tag
	$(BUF) lint
	$(BUF) format -d --exit-code --path proto/writ
	@$(BUF) breaking proto --exclude-imports --against proto/image.binpb || echo 'advisory: the contracts changed incompatibly; `make proto-image` records them'
	@test -z "$$(gofmt -l $$(git ls-files '*.go' | grep -v '^gen/'))" || { echo 'not formatted:'; gofmt -l $$(git ls-files '*.go' | grep -v '^gen/'); exit 1; }
	go vet work

.PHONY: apart
apart: ## each module builds without the workspace
	@for dir in $(MODULES); do echo "GOWORK=off go build  $${dir#$(CURDIR)/}"; (cd $$dir && GOWORK=off go build ./... ); done

.PHONY: test
test: system tools lint gen-check apart build ## all behaviour, under 15 minutes on two cores
	go test $(GOFLAGS_TEST) $$(go list work | grep -v '/writ/e2e')
	cd e2e && go test $(GOFLAGS_TEST) -count=1 ./... # they start programs that the test cache does not know of
	go test $(GOFLAGS_TEST) -race $(RACE)

.PHONY: test-full
test-full: test ## make test, and the slow real peers
	cd e2e && WRIT_FULL=1 go test -timeout 60m -count=1 ./...

.PHONY: soak
soak: tools build ## the long loops
	cd e2e && WRIT_SOAK=10m go test -timeout 60m -count=1 -run 'Soak|Crash' ./...

.PHONY: bench
bench: build ## speed against a direct call and a bare bridge, in one run
	cd e2e && go run ./bench

.PHONY: demo
demo: build tools ## build, start on a temporary home, make three calls, show receipts and the trace
	tools/demo.sh

.PHONY: dev
dev: ## rebuild and restart with state kept
	go build -o $(BIN)/ ./cmd/writ
	-$(BIN)/writ down
	$(BIN)/writ up -d

.PHONY: clean
clean: ## remove what was built and installed
	rm -rf $(BIN) .cache tools/buf/node_modules
