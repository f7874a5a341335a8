# The things to do with this repository. `make gate` is what every change must
# pass, in ten minutes; `make full` is everything, in hours, and needs root.
export CGO_ENABLED ?= 0

.PHONY: build test check format gate full

build: ## the executable, bin/sallyport
	go build -trimpath -ldflags '-s -w' -o bin/sallyport ./cmd/sallyport

test: ## the unit tests
	go test -short ./...

check: ## formatting, vet, the linters, the layers and the words
	@test -z "$$(git ls-files '*.go' | xargs gofmt -l | tee /dev/stderr)"
	go vet ./...
	go tool -modfile=scripts/tools/go.mod staticcheck ./...
	go test ./internal/arch
	go mod tidy -diff

format: ## gofmt over all files
	git ls-files '*.go' | xargs gofmt -w

gate: ## what every change must pass
	.ci/run

full: ## what the gate leaves out
	.ci/full
