package tmpdeps

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/modelcontextprotocol/go-sdk/mcp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/santhosh-tekuri/jsonschema/v6"
	_ "github.com/tiktoken-go/tokenizer"
	_ "go.uber.org/goleak"
	_ "gvisor.dev/gvisor/runsc/cli/maincli"
	_ "github.com/opencontainers/runtime-spec/specs-go"
)
