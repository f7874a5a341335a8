// Package manual is what an agent can read about run_python beyond the tool's
// description. One document, manual.md, has three forms: a resource and a prompt of
// the MCP server, both without the longer examples, and a skill that clients
// read from a folder. The examples are tested: a test runs each block of code and compares the output with what it shows.
package manual

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

//go:embed manual.md
var text string

// Name is the name of the skill, and of the folder that it is in.
const Name = "sallyport"

// long matches what only the skill has: blocks marked as examples, and blocks that
// show what the code before them prints.
var long = lazyregexp.New("(?ms)^```(?:\\w+ example|text)\n.*?^```\n\n?")

// brief returns the manual as a model reads it whole.
func brief() string { return long().ReplaceAllString(text, "") }

// description is what a client reads of a skill before it needs the skill.
const description = "Run Python code in Sallyport's sandbox, where every MCP server of the user is a module. " +
	"Use it when the tool run_python of the MCP server sallyport is available, to call MCP tools from code, " +
	"analyze data, draw charts, or combine the results of many tool calls without reading them all."

// Resource returns the manual as the resource uri. The tool's description comes
// first: clients of the first code-execution bridge expect it there, and the
// URI at the end.
func Resource(toolDescription, uri string) string {
	return "# Code Execution MCP Capabilities\n\n" + toolDescription + "\n\n" + brief() + "\nResource URI: " + uri
}

// Prompt returns the manual as a message to a model, with the task that the user
// gave, if any.
func Prompt(task string) string {
	prompt := "Use the tool run_python of the MCP server sallyport.\n\n" + brief()
	if task = strings.TrimSpace(task); task != "" {
		prompt += "\n## Task\n\n" + task + "\n"
	}
	return prompt
}

// Skill returns the manual as the file SKILL.md.
func Skill() string {
	const before = "---\nname: " + Name + "\ndescription: " + description + "\nlicense: Apache-2.0\n" +
		"compatibility: Needs the MCP server sallyport (sallyport serve) with its tool run_python.\nmetadata:\n"
	after := "---\n\n# Run Python with Sallyport\n\n" + strings.ReplaceAll(text, " example\n", "\n")
	return before + "  checksum: " + sum(before+after) + "\n" + after
}

var checksum = lazyregexp.New(`(?m)^  checksum: ([0-9a-f]{16})\n`)

// Unchanged reports whether a file is a skill as some version of Skill returned
// it: nothing in it has been edited.
func Unchanged(skill string) bool {
	at := checksum().FindStringSubmatchIndex(skill)
	return at != nil && skill[at[2]:at[3]] == sum(skill[:at[0]]+skill[at[1]:])
}

// sum returns a short digest, which is to notice edits, not attacks.
func sum(s string) string {
	digest := sha256.Sum256([]byte(s))
	return hex.EncodeToString(digest[:8])
}
