package proxies

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
)

// Variables that make the test binary a server: one that lists the tools of a
// file, and writes the parameters of calls into another, a line each; or one
// whose results carry more than text.
const (
	toolsVariable  = "PROXIES_TEST_TOOLS"
	recordVariable = "PROXIES_TEST_RECORD"
	carryVariable  = "PROXIES_TEST_CARRY"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(toolsVariable) != "":
		err = record(os.Getenv(toolsVariable), os.Getenv(recordVariable))
	case os.Getenv(carryVariable) != "":
		err = serve(os.Stdin, os.Stdout, carry)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// record is the recording server.
func record(tools, to string) error {
	b, err := os.ReadFile(tools)
	if err != nil {
		return err
	}
	var list struct {
		Tools json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, list.Tools); err != nil {
		return err
	}
	log, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	return serve(os.Stdin, os.Stdout, func(method string, params json.RawMessage) (string, error) {
		switch method {
		case "tools/list":
			return `{"tools":` + compact.String() + `}`, nil
		case "tools/call":
			_, err := fmt.Fprintf(log, "%s\n", params)
			return `{"content":[{"type":"text","text":"recorded"}]}`, err
		}
		return "", nil
	})
}

// carry answers with results that carry more than text.
func carry(method string, params json.RawMessage) (string, error) {
	switch method {
	case "tools/list":
		return `{"tools":[{"name":"draw","inputSchema":{"type":"object"}}]}`, nil
	case "tools/call":
		return `{"content":[{"type":"text","text":"see"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"},` +
			`{"type":"audio","data":"AAEC","mimeType":"audio/wav"},` +
			`{"type":"resource","resource":{"uri":"note:///a/b.md","mimeType":"text/markdown","text":"# b"}},` +
			`{"type":"resource_link","uri":"note:///c","name":"c"}]}`, nil
	case "resources/list":
		if bytes.Contains(params, []byte("cursor")) {
			return `{"resources":[{"uri":"note:///d","name":"d"}]}`, nil
		}
		return `{"resources":[{"uri":"note:///c","name":"c"}],"nextCursor":"2"}`, nil
	case "resources/templates/list":
		return `{"resourceTemplates":[{"uriTemplate":"note:///{x}","name":"x"}]}`, nil
	case "resources/read":
		return `{"contents":[{"uri":"note:///c","mimeType":"application/octet-stream","blob":"AAEC"}]}`, nil
	case "prompts/get":
		return `{"messages":[{"role":"user","content":{"type":"text","text":` + string(quote(string(params))) + `}}]}`, nil
	}
	return "", nil
}

// serve answers requests. An empty result is that of a method not known.
func serve(in io.Reader, out io.Writer, answer func(method string, params json.RawMessage) (string, error)) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(line, &request); err != nil {
			return err
		}
		if request.ID == nil {
			continue
		}
		reply := `"error":{"code":-32601,"message":"Method not found"}`
		if request.Method == "initialize" {
			reply = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}`
		} else if result, err := answer(request.Method, request.Params); err != nil {
			return err
		} else if result != "" {
			reply = `"result":` + result
		}
		if _, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", request.ID, reply); err != nil {
			return err
		}
	}
}
