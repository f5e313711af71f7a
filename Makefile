# `make check` is what CI runs; every target works on a bare checkout with Go.

BIN := bin/routerd

.PHONY: build check tidy format vet lint test race fuzz bench docs-python compose replay clean

build:
	go build -o $(BIN) ./cmd/routerd

check: tidy format vet lint test race fuzz bench docs-python compose

tidy:
	go mod tidy -diff

format:
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }

vet:
	go vet ./...

lint:
	go tool staticcheck ./...

# Includes what is too slow under the race detector: the simulated engine against
# published figures, on the whole trace.
test:
	go test ./...

race:
	go test -race -shuffle=on ./...

# A few seconds of each fuzz target.
fuzz:
	./scripts/each-fuzz-target 3s

# Every benchmark once, to see that it runs.
bench:
	go test -run='^$$' -bench=. -benchtime=1x ./... | grep -v '^?\|no test files'

# The programs of docs/publishing.md, run as a reader would.
docs-python: build
	./scripts/check-python-docs $(BIN)

# Validates docker-compose.yml where a docker client is installed.
compose:
	@if docker compose version >/dev/null 2>&1; then docker compose config --quiet && echo "docker-compose.yml is valid"; \
	else echo "no docker compose client here: docker-compose.yml not validated"; fi

# The whole conversation trace at the load where policies differ most.
replay: build
	$(BIN) replay testdata/conversation_trace.jsonl --load 6

clean:
	rm -rf bin
