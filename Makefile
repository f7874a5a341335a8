# The five things to do with this repository. `make ci` needs what .ci/run says.
export CGO_ENABLED ?= 0

.PHONY: build test check format ci

build: ## the executable, bin/sallyport
	go build -trimpath -ldflags '-s -w' -o bin/sallyport ./cmd/sallyport

test: build ## what needs neither root nor scripts/setup
	go test $$(go list ./... | grep -v -e /test/)

check: ## formatting, vet, the linters, the layers and the words
	@test -z "$$(git ls-files '*.go' | xargs gofmt -l | tee /dev/stderr)"
	go vet ./...
	go tool -modfile=scripts/tools/go.mod staticcheck ./...
	go test ./internal/arch
	go mod tidy -diff

format: ## gofmt over all files
	git ls-files '*.go' | xargs gofmt -w

ci: ## everything
	.ci/run
