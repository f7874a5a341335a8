package settings

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// head is the hand-written part of the documentation.
//
//go:embed head.md
var head string

// sections lists the headings of the documentation, in order.
var sections = []struct{ name, title, text string }{
	{"", "What runs code", ""},
	{"timeouts", "Timeouts", "Durations are numbers of seconds (`30`) or have units (`30s`, `2m`, `1h30m`)."},
	{"limits", "Limits of a sandbox", "Sizes are in bytes or have units (`k`, `m`, `g`, `t`; `m` is 1,048,576 bytes)."},
	{"files", "Folders of this computer", "Code sees no file of this computer unless you show it a folder ([folders](GUIDE.md#folders-of-this-computer)). These settings are in the configuration file alone: no variable or flag sets them. `sallyport run --mount` shows a folder to one session."},
	{"artifacts", "Files that code leaves", "What code creates or changes in `/workspace` is kept by content in the folder `artifacts` of the state folder; `sallyport artifacts` shows it and takes it out."},
	{"environments.NAME", "Environments", "Packages for code under a name, built once and used without a network ([environments](GUIDE.md#environments)). They are in the configuration file alone: no variable or flag sets them, and `sallyport env add` writes them. What one does not set is as for all sandboxes."},
	{"environments.NAME.limits", "", ""},
	{"policy", "What a machine must offer", "Code does not run on a machine that offers less; the error says what is missing."},
	{"policy.require", "", ""},
	{"policy.batchServices", "", ""},
	{"policy.executions", "How much may run", "Clients take turns: a hundred executions of one delay the first one of another until a place is free."},
	{"policy.executions.perClient", "", ""},
	{"approvals", "Approvals", "Some calls wait until a person agrees: `sallyport approvals` shows and answers them."},
	{"approvals.notify", "", ""},
	{"audit", "The audit log", "What was done for whom, and who allowed it, in the folder `audit` of the state folder; `sallyport audit` shows and verifies it."},
	{"servers", "MCP servers", ""},
	{"servers.sampling", "", ""},
	{"sessions", "Between calls", ""},
	{"batch", "Batch services", ""},
	{"runs", "Runs on batch services", "For the services that `batch.services` names. `sallyport runs` shows the runs; their results are kept in the folder `runs` of the state folder."},
	{"kaggle", "Runs on Kaggle", "Sallyport uses the credentials of Kaggle's own programs, from their usual places ([the service](engines/kaggle.md))."},
	{"catalog", "What is known of servers' tools", "Lists of tools are kept in the folder `catalog` of the state folder, so that they are found without starting the servers; `sallyport tools` shows them."},
	{"cache", "Results that are used again", "Which results are kept, and for how long, rules say: `cache: {for: 10m}` in `policy.tools`. Each user has results of their own."},
	{"memories", "Values that code keeps", "Each is a file in the folder `memory` of the state folder; `sallyport memory` shows them."},
	{"savedTools", "Functions that code saves", "Each is a file in the folder `user_tools` of the state folder; `sallyport saved-tools` shows them."},
	{"runpod", "Runs on RunPod", "For `batch.services: [runpod]` ([the service](engines/runpod.md))."},
	{"worker", "Workers", "For `sallyport worker runpod` ([the service](engines/runpod.md))."},
	{"deploy.runpod", "Deploying to RunPod", "For `sallyport deploy runpod`."},
	{"tools", "Tools besides run_python", ""},
	{"images", "Images", "For every engine that takes `image`; `sallyport image` works on those of the embedded gVisor."},
	{"container", "Container engines", "[podman](engines/podman.md), [docker](engines/docker.md)."},
	{"hub", "The hub", "One process of the user serves all clients; `sallyport hub` shows it."},
	{"answer", "Answers", ""},
	{"output", "Results", ""},
	{"carbon", "Energy and emissions", "[How they are estimated](carbon.md); `sallyport carbon` shows them. The project token, the experiment and the endpoint of a dashboard are taken from CodeCarbon's own configuration."},
	{"carbon.kaggle", "", ""},
	{"carbon.runpod", "", ""},
	{"metrics", "Metrics", "What was counted since the hub began; `sallyport stats` prints it."},
	{"traces", "Traces", ""},
	{"log", "Log lines", ""},
	{"debug", "For people who debug Sallyport", ""},
}

// Document returns the contents of docs/CONFIGURATION.md.
func Document() string {
	var s Settings
	l := newLoader(&s, "", "")
	shown := slices.Concat(s.entries, declareEnvironment(&Environment{Name: "NAME"}))
	var b strings.Builder
	b.WriteString(strings.TrimSpace(head) + "\n")
	for _, section := range sections {
		if section.title != "" {
			fmt.Fprintf(&b, "\n## %s\n\n", section.title)
			if section.text != "" {
				b.WriteString(section.text + "\n\n")
			}
			b.WriteString("| setting | default | values | meaning | variables |\n|---|---|---|---|---|\n")
		}
		for _, e := range shown {
			if e.section() == section.name {
				b.WriteString(documentRow(e))
			}
		}
	}
	b.WriteString("\n## Variables of the first code-execution bridge\n\n" +
		"They mean what they meant there. A `SALLYPORT_…` variable for the same setting overrides them.\n\n" +
		"| variable | setting |\n|---|---|\n")
	for _, key := range l.keys {
		if e := l.settings[key]; strings.HasPrefix(e.legacy, "MCP_") {
			fmt.Fprintf(&b, "| `%s` | `%s` |\n", e.legacy, e.key)
		}
	}
	b.WriteString("\n## Variables of services\n\nOther programs for these services read them, too.\n\n| variable | setting |\n|---|---|\n")
	for _, key := range l.keys {
		if e := l.settings[key]; e.legacy != "" && !strings.HasPrefix(e.legacy, "MCP_") {
			fmt.Fprintf(&b, "| `%s` | `%s` |\n", e.legacy, e.key)
		}
	}
	b.WriteString("\nThese never existed, and are errors with this answer:\n\n| variable | answer |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(invented)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, invented[name])
	}
	return b.String()
}

func documentRow(e *setting) string {
	initial := e.defaults
	switch {
	case e.fileOnly && e.initial == "":
		initial = "none"
	case initial == "":
		initial = "`" + e.value.text() + "`"
	}
	values := e.value.kind()
	if bounds := e.value.bounds(); bounds != "" {
		values += ": " + bounds
		if values == "word: "+bounds {
			values = bounds
		}
	}
	var variables []string
	if e.fileOnly {
		variables = []string{"none"}
	}
	for _, v := range slices.Backward(e.variables()) {
		variables = append(variables, "`"+v+"`")
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", e.key, initial, values, e.help, strings.Join(variables, "<br>"))
}
