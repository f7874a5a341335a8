package arch

import (
	"slices"
	"sort"
	"strings"
	"testing"
)

// layer is one row of the architecture, and allowed is what its packages may
// import of this module: exactly that, so that a new dependency between two
// packages is a visible change of this table. Rows stand from top to bottom;
// TestTablePointsDown checks that every import points to a lower row.
type layer struct {
	pkg     string
	row     int
	allowed []string
}

var layers = []layer{
	{"cmd/sallyport", 90, []string{"internal/cli", "internal/executable", "internal/procfs", "internal/sandbox/gvisor/supervisor", "internal/sandbox/process", "internal/sandbox/wasm/host"}},

	{"internal/cli", 80, []string{
		"internal/inquiry",
		"internal/artifact", "internal/authz/audit",
		"internal/executable",
		"internal/accounting", "internal/app", "internal/artifact", "internal/authz", "internal/authz/approval", "internal/authz/toolpolicy", "internal/batch", "internal/batch/deploy", "internal/batch/runpod/job", "internal/batch/runs", "internal/bridge", "internal/broker", "internal/completion", "internal/connect", "internal/connect/o200k", "internal/configfile", "internal/budget", "internal/control", "internal/environment", "internal/folder", "internal/hub", "internal/hub/execution", "internal/image", "internal/image/archive",
		"internal/image/build", "internal/image/flatten", "internal/invisible", "internal/manpage", "internal/manual", "internal/mcpserver", "internal/mcpserver/tasks", "internal/memory", "internal/metrics", "internal/sandbox",
		"internal/private", "internal/savedtools", "internal/session", "internal/session/hibernate", "internal/session/archive", "internal/session/sessionlog", "internal/socket",
		"internal/settings", "internal/skill", "internal/store", "internal/store/keyed", "internal/table", "internal/terminal", "internal/toolbox/catalog", "internal/toolbox/pins", "internal/toolbox/signature", "internal/toolbox/tool",
		"internal/upstream", "internal/upstream/definitions", "internal/upstream/library", "internal/upstream/oauth", "internal/usage/carbon", "internal/usage/carbon/codecarbon",
		"internal/usage/ledger", "internal/wire", "internal/worker", "internal/upgrade",
	}},
	{"internal/completion", 70, []string{"internal/invisible"}},
	{"internal/configfile", 14, []string{"internal/private", "internal/settings"}},
	{"internal/manpage", 70, nil},
	{"internal/mcpserver", 78, []string{"internal/inquiry", "internal/artifact", "internal/tracecontext", "internal/authz", "internal/authz/approval", "internal/broker", "internal/fold", "internal/invisible", "internal/jsonscan", "internal/manual", "internal/mcpserver/tasks", "internal/pipe", "internal/runpodtools", "internal/sandbox", "internal/toon", "internal/wire"}},
	{"internal/mcpserver/tasks", 77, []string{"internal/budget", "internal/store"}},
	{"internal/hub/execution", 77, []string{"internal/authz", "internal/broker", "internal/budget", "internal/lazyregexp", "internal/sandbox", "internal/wire"}},
	{"internal/hub", 76, []string{"internal/lazyregexp", "internal/jsonscan", "internal/pipe", "internal/private", "internal/socket", "internal/store"}},
	{"internal/app", 75, []string{
		"internal/artifact", "internal/folder",
		"internal/authz/audit", "internal/redact",
		"internal/executable",
		"internal/lazyregexp", "internal/inquiry",
		"internal/accounting", "internal/authz", "internal/authz/approval", "internal/authz/toolpolicy", "internal/batch", "internal/batch/deploy", "internal/batch/kaggle", "internal/batch/runpod", "internal/batch/runpod/job", "internal/batch/runpod/rest", "internal/batch/runs",
		"internal/bridge", "internal/bridge/results", "internal/broker", "internal/configfile", "internal/control", "internal/environment", "internal/guest", "internal/image", "internal/image/archive", "internal/image/build", "internal/image/flatten", "internal/journal",
		"internal/image/registry", "internal/language/python", "internal/memory", "internal/metrics", "internal/private", "internal/runpodtools", "internal/sandbox",
		"internal/sandbox/container", "internal/sandbox/gvisor", "internal/sandbox/instancedir", "internal/sandbox/wasm", "internal/sandbox/process", "internal/savedtools", "internal/session",
		"internal/session/places", "internal/settings", "internal/snapshot", "internal/store", "internal/toolbox/catalog", "internal/toolbox/pins",
		"internal/upstream", "internal/upstream/definitions", "internal/upstream/library", "internal/upstream/oauth", "internal/upstream/secret", "internal/usage/carbon",
		"internal/usage/carbon/codecarbon", "internal/usage/carbon/hardware", "internal/usage/carbon/intensity", "internal/usage/ledger",
		"internal/wire", "internal/worker", "internal/session/hibernate", "internal/socket", "internal/systemd", "internal/upgrade", "internal/traces", "internal/upgrade/owner",
	}},
	{"internal/accounting", 65, []string{
		"internal/journal", "internal/session", "internal/usage/carbon", "internal/usage/carbon/codecarbon", "internal/usage/carbon/hardware", "internal/usage/carbon/intensity",
		"internal/usage/ledger", "internal/batch/runs", "internal/session/usage", "internal/store",
	}},
	{"internal/runpodtools", 65, []string{"internal/authz", "internal/broker", "internal/batch/runpod"}},
	{"internal/broker", 60, []string{
		"internal/artifact", "internal/fold", "internal/invisible", "internal/lazyregexp", "internal/picture", "internal/tracecontext",
		"internal/authz", "internal/journal", "internal/usage/carbon",
		"internal/bridge", "internal/session", "internal/session/archive", "internal/session/capture", "internal/session/places", "internal/session/usage", "internal/batch", "internal/batch/runs", "internal/sandbox", "internal/wire",
	}},
	{"internal/artifact", 40, []string{"internal/lazyregexp", "internal/store"}},
	{"internal/picture", 40, nil},
	{"internal/batch/runs", 52, []string{"internal/lazyregexp", "internal/batch", "internal/sandbox", "internal/store"}},
	{"internal/batch/deploy", 55, []string{"internal/lazyregexp", "internal/batch/runpod/rest"}},
	{"internal/worker", 55, []string{"internal/authz", "internal/sandbox", "internal/batch/runpod/job", "internal/session", "internal/session/capture", "internal/store", "internal/wire"}},
	{"internal/control", 52, []string{"internal/authz/approval", "internal/metrics", "internal/private", "internal/session", "internal/session/hibernate", "internal/socket", "internal/wire"}},
	{"internal/session", 51, []string{"internal/tracecontext", "internal/lazyregexp", "internal/journal", "internal/session/archive", "internal/session/capture", "internal/session/clock", "internal/session/places", "internal/session/hibernate", "internal/session/sessionlog", "internal/session/usage", "internal/sandbox", "internal/snapshot", "internal/store", "internal/guest", "internal/wire", "internal/budget"}},
	{"internal/session/archive", 50, []string{"internal/session/sessionlog", "internal/wire"}},
	{"internal/session/capture", 50, []string{"internal/budget", "internal/wire"}},
	{"internal/session/clock", 40, nil},
	{"internal/session/hibernate", 50, []string{"internal/sandbox", "internal/session/clock", "internal/snapshot", "internal/store", "internal/wire"}},
	{"internal/session/places", 40, nil},
	{"internal/session/sessionlog", 49, []string{"internal/store", "internal/wire"}},
	{"internal/session/usage", 12, []string{"internal/sandbox"}},
	{"internal/bridge", 50, []string{"internal/tracecontext", "internal/inquiry",
		"internal/bridge/results",
		"internal/upstream/definitions", "internal/terminal", "internal/toolbox/tool",
		"internal/authz", "internal/toolbox/catalog", "internal/invisible", "internal/toolbox/pins", "internal/toolbox/shape", "internal/toolbox/signature",
		"internal/jsonscan", "internal/memory", "internal/savedtools", "internal/store", "internal/store/keyed", "internal/upstream", "internal/upstream/jsonrpc", "internal/upstream/oauth", "internal/wire",
	}},
	{"internal/bridge/results", 39, []string{"internal/jsonscan", "internal/store"}},

	{"internal/toolbox/catalog", 45, []string{"internal/toolbox/tool", "internal/toolbox/shape", "internal/toolbox/search", "internal/toolbox/signature", "internal/store"}},
	{"internal/toolbox/pins", 44, []string{"internal/jsonscan", "internal/toolbox/tool", "internal/invisible", "internal/store"}},
	{"internal/toolbox/signature", 44, []string{"internal/invisible", "internal/jsonscan"}},
	{"internal/toolbox/shape", 44, []string{"internal/jsonscan"}},
	{"internal/usage/carbon/intensity", 40, []string{"internal/usage/carbon", "internal/store"}},
	{"internal/usage/carbon/codecarbon", 40, []string{"internal/store"}},
	{"internal/usage/carbon/codecarbon/codecarbontest", 30, nil},
	{"internal/usage/ledger", 40, []string{"internal/store"}},
	{"internal/memory", 40, []string{"internal/store", "internal/store/keyed"}},
	{"internal/savedtools", 40, []string{"internal/store", "internal/store/keyed"}},
	{"internal/authz/toolpolicy", 43, []string{"internal/authz", "internal/jsonscan", "internal/private", "internal/settings", "internal/toolbox/tool"}},
	{"internal/authz", 40, []string{"internal/inquiry", "internal/folder", "internal/journal", "internal/tracecontext", "internal/terminal", "internal/sandbox", "internal/toolbox/tool"}},
	{"internal/traces", 41, []string{"internal/journal", "internal/metrics", "internal/tracecontext"}},
	{"internal/tracecontext", 8, []string{"internal/lazyregexp"}},
	{"internal/metrics", 40, []string{"internal/journal"}},
	{"internal/authz/audit", 41, []string{"internal/journal", "internal/redact", "internal/store"}},
	{"internal/redact", 8, nil},
	{"internal/journal", 20, []string{"internal/tracecontext", "internal/session/usage"}},
	{"internal/authz/approval", 46, []string{"internal/inquiry", "internal/journal", "internal/authz", "internal/invisible", "internal/jsonscan", "internal/lazyregexp", "internal/store", "internal/toolbox/tool"}},
	{"internal/upstream", 43, []string{"internal/tracecontext", "internal/inquiry", "internal/lazyregexp", "internal/upstream/oauth",
		"internal/journal", "internal/session/usage",
		"internal/toolbox/tool",
		"internal/upstream/definitions", "internal/upstream/child", "internal/upstream/jsonrpc", "internal/jsonscan",
		"internal/upstream/remote", "internal/budget", "internal/store",
	}},
	{"internal/upstream/remote", 41, []string{"internal/budget", "internal/jsonscan", "internal/upstream/jsonrpc", "internal/upstream/tail"}},
	{"internal/connect/o200k", 39, nil},
	{"internal/connect", 45, []string{"internal/lazyregexp", "internal/edit", "internal/private", "internal/store", "internal/upstream/definitions"}},
	{"internal/upstream/library", 41, []string{"internal/store", "internal/terminal", "internal/toolbox/tool", "internal/upstream/definitions"}},
	{"internal/upstream/definitions", 40, []string{"internal/lazyregexp", "internal/edit", "internal/redact"}},
	{"internal/edit", 39, []string{"internal/lazyregexp"}},
	{"internal/upstream/oauth", 42, []string{"internal/invisible", "internal/redact", "internal/store", "internal/terminal"}},
	{"internal/upstream/secret", 40, nil},
	{"internal/upstream/child", 40, []string{"internal/upstream/tail"}},
	{"internal/upstream/jsonrpc", 40, []string{"internal/lazyregexp", "internal/budget", "internal/jsonscan", "internal/pipe", "internal/upstream/tail"}},
	{"internal/upstream/tail", 39, nil},

	{"internal/guest", 35, []string{"internal/budget", "internal/pipe", "internal/sandbox", "internal/wire"}},
	{"internal/guest/guesttest", 30, []string{"internal/wire"}},
	{"internal/language/python", 35, []string{"internal/lazyregexp", "internal/sandbox"}},

	{"internal/sandbox/gvisor/supervisor", 32, []string{"internal/executable", "internal/sandbox", "internal/sandbox/gvisor", "internal/sandbox/hostroot", "internal/sandbox/supervise"}},
	{"internal/sandbox/container", 31, []string{"internal/lazyregexp", "internal/sandbox", "internal/sandbox/hostroot", "internal/sandbox/supervise", "internal/store"}},
	{"internal/sandbox/gvisor", 31, []string{"internal/executable", "internal/private", "internal/sandbox/instancedir", "internal/image", "internal/sandbox", "internal/sandbox/hostroot", "internal/sandbox/programdir", "internal/sandbox/supervise", "internal/systemd"}},
	{"internal/sandbox/wasm", 32, []string{"internal/executable", "internal/private", "internal/sandbox", "internal/sandbox/supervise", "internal/sandbox/wasm/control", "internal/sandbox/wasm/interpreter", "internal/sandbox/wasm/machine"}},
	{"internal/sandbox/seccomp", 10, nil},
	{"internal/sandbox/wasm/host", 31, []string{"internal/sandbox", "internal/sandbox/seccomp", "internal/sandbox/wasm/control", "internal/sandbox/wasm/machine"}},
	{"internal/sandbox/wasm/control", 21, []string{"internal/sandbox"}},
	{"internal/sandbox/wasm/machine", 23, []string{"internal/sandbox", "internal/sandbox/wasm/interpreter", "internal/sandbox/wasm/memfs", "internal/sandbox/wasm/wasi"}},
	{"internal/sandbox/wasm/wasi", 22, []string{"internal/sandbox/wasm/memfs"}},
	{"internal/sandbox/wasm/memfs", 21, nil},
	{"internal/sandbox/wasm/interpreter", 21, nil},
	{"internal/sandbox/process", 31, []string{"internal/executable", "internal/private", "internal/sandbox/instancedir", "internal/sandbox", "internal/sandbox/hostroot", "internal/sandbox/programdir", "internal/sandbox/seccomp", "internal/sandbox/supervise"}},
	{"internal/sandbox/supervise", 12, []string{"internal/executable", "internal/sandbox"}},
	{"internal/sandbox/fake", 30, []string{"internal/sandbox", "internal/wire"}},
	{"internal/batch/kaggle", 30, []string{"internal/lazyregexp", "internal/batch", "internal/sandbox"}},
	{"internal/batch/kaggle/kaggletest", 29, []string{"internal/lazyregexp"}},
	{"internal/batch/runpod", 30, []string{"internal/lazyregexp", "internal/batch", "internal/sandbox", "internal/batch/runpod/job", "internal/store"}},
	{"internal/batch/runpod/runpodtest", 30, nil},
	{"internal/sandbox/sandboxtest", 52, []string{"internal/toolbox/tool", "internal/budget", "internal/sandbox", "internal/guest", "internal/language/python", "internal/session", "internal/wire"}},

	{"internal/batch/runpod/rest", 12, nil},
	{"internal/batch/runpod/job", 13, []string{"internal/batch", "internal/sandbox"}},
	{"internal/batch/batchtest", 13, []string{"internal/batch", "internal/sandbox"}},
	{"internal/batch", 12, []string{"internal/sandbox"}},
	{"internal/sandbox/hostroot", 12, []string{"internal/sandbox"}},
	{"internal/sandbox/programdir", 12, []string{"internal/lazyregexp", "internal/private", "internal/sandbox"}},
	{"internal/environment", 21, []string{"internal/image", "internal/image/build", "internal/lazyregexp", "internal/store", "internal/wire"}},
	{"internal/image/build", 20, []string{"internal/lazyregexp", "internal/image", "internal/image/archive", "internal/image/flatten", "internal/sandbox"}},
	{"internal/image/archive", 13, []string{"internal/image", "internal/image/flatten"}},
	{"internal/image/registry", 13, []string{"internal/lazyregexp", "internal/image", "internal/image/flatten"}},
	{"internal/image", 12, []string{"internal/lazyregexp", "internal/image/flatten", "internal/private", "internal/store"}},
	{"internal/image/flatten", 10, nil},
	{"internal/folder", 12, []string{"internal/sandbox"}},
	{"internal/sandbox", 11, []string{"internal/lazyregexp"}},
	{"internal/usage/carbon/hardware", 11, []string{"internal/usage/carbon"}},
	{"internal/usage/carbon", 10, []string{"internal/lazyregexp"}},
	{"internal/sandbox/instancedir", 10, []string{"internal/lazyregexp", "internal/private"}},
	{"internal/procfs", 10, nil},
	{"internal/upgrade", 10, []string{"internal/lazyregexp"}},
	{"internal/upgrade/owner", 10, []string{"internal/lazyregexp"}},
	{"internal/fold", 8, nil},
	{"internal/inquiry", 12, []string{"internal/invisible", "internal/jsonscan"}},
	{"internal/invisible", 8, nil},
	{"internal/manual", 8, []string{"internal/lazyregexp"}},
	{"internal/skill", 10, []string{"internal/manual", "internal/private"}},
	{"internal/table", 8, nil},
	{"internal/terminal", 11, []string{"internal/invisible"}},
	{"internal/toolbox/search", 10, []string{"internal/toolbox/search/vectors"}},
	{"internal/toolbox/search/vectors", 9, nil},
	{"internal/settings", 13, []string{"internal/folder", "internal/lazyregexp", "internal/sandbox"}},
	{"internal/snapshot", 11, []string{"internal/lazyregexp", "internal/private", "internal/store"}},
	{"internal/socket", 10, []string{"internal/private"}},
	{"internal/systemd", 10, nil},
	{"internal/store/keyed", 15, []string{"internal/store"}},
	{"internal/store", 10, []string{"internal/private"}},
	{"internal/private", 9, nil},
	{"internal/toon", 10, nil},
	{"internal/wire", 10, []string{"internal/lazyregexp", "internal/jsonscan", "internal/toolbox/tool"}},
	{"internal/budget", 10, nil},
	{"internal/pipe", 10, nil},
	{"internal/jsonscan", 8, nil},
	{"internal/toolbox/tool", 9, []string{"internal/invisible", "internal/jsonscan"}},
	{"internal/executable", 1, nil},
	{"internal/lazyregexp", 1, nil},
	{"internal/arch", 0, nil},
}

// Programs of the repository that are not the product. They may import the
// product's packages only where this says so.
var programs = map[string][]string{
	"bench":            nil,
	"bench/agent":      nil,
	"bench/echoserver": nil,
	"bench/servers":    nil,
	"bench/search":     {"internal/toolbox/search"},

	"bench/search/convert": nil,

	"scripts/carbontables":    nil,
	"scripts/crosscheck":      nil,
	"scripts/mcpb":            {"internal/settings"},
	"scripts/notice":          nil,
	"scripts/o200k":           nil,
	"scripts/recording":       nil,
	"scripts/report":          nil,
	"scripts/size":            nil,
	"scripts/wasmpython":      nil,
	"test/boxes":              nil,
	"test/conformance/client": {"internal/inquiry", "internal/store", "internal/upstream", "internal/upstream/definitions", "internal/upstream/oauth"},
	"test/conformance/server": {"internal/mcpserver/tasks", "internal/store"},
	"test/engines":            {"internal/language/python", "internal/image", "internal/image/archive", "internal/image/flatten", "internal/sandbox", "internal/sandbox/container", "internal/sandbox/gvisor", "internal/sandbox/process", "internal/sandbox/sandboxtest", "internal/sandbox/wasm", "internal/store"},
	"test/engines/matrix":     nil,
	"test/faults":             {"internal/hub", "internal/sandbox/sandboxtest"},
	"test/endurance":          {"internal/sandbox/sandboxtest"},
	"test/proxies":            nil,
	"test/smoke":              {"internal/language/python", "internal/sandbox", "internal/sandbox/gvisor", "internal/sandbox/sandboxtest"},
	"test/release":            nil,
	"test/carbon/peer":        {"internal/usage/carbon", "internal/usage/carbon/codecarbon/codecarbontest"},
	"test/kaggle/fake":        {"internal/batch/kaggle/kaggletest"},
	"test/runpod/fake":        {"internal/batch/runpod/runpodtest"},

	"scripts/configuration": {"internal/settings"},
	"scripts/man":           {"internal/cli"},
}

// testImports are what tests of any package may import. The fake engine, the
// services' doubles and the suite are for tests alone.
var testImports = []string{"internal/sandbox", "internal/sandbox/fake", "internal/batch/batchtest", "internal/batch/kaggle/kaggletest", "internal/batch/runpod/runpodtest", "internal/sandbox/sandboxtest", "internal/guest", "internal/guest/guesttest", "internal/language/python"}

func table() map[string]layer {
	t := map[string]layer{}
	for _, l := range layers {
		t[l.pkg] = l
	}
	return t
}

func TestTablePointsDown(t *testing.T) {
	byName := table()
	for _, l := range layers {
		for _, imp := range l.allowed {
			below, ok := byName[imp]
			if !ok {
				t.Errorf("%s may import %s, which is not in the table", l.pkg, imp)
			} else if below.row >= l.row {
				t.Errorf("%s (row %d) may import %s (row %d): imports point down only", l.pkg, l.row, imp, below.row)
			}
		}
	}
}

// TestTableIsOfThisTree: what is gone, a package or its last import of
// another, leaves the table too.
func TestTableIsOfThisTree(t *testing.T) {
	present := map[string]bool{}
	used := map[string]bool{}
	for _, f := range sources(t) {
		present[f.pkg] = true
		for _, imp := range f.imports {
			if !f.test {
				used[f.pkg+" "+strings.TrimPrefix(imp, module+"/")] = true
			}
		}
	}
	for _, l := range layers {
		if !present[l.pkg] {
			t.Errorf("%s is in the table and has no Go file", l.pkg)
		}
		for _, imp := range l.allowed {
			if !used[l.pkg+" "+imp] {
				t.Errorf("%s may import %s and does not: take it off the table", l.pkg, imp)
			}
		}
	}
	for pkg := range programs {
		if !present[pkg] {
			t.Errorf("%s is in the table of programs and has no Go file", pkg)
		}
	}
}

func TestImportsBetweenPackages(t *testing.T) {
	byName := table()
	strangers := map[string]bool{}
	for _, f := range sources(t) {
		l, known := byName[f.pkg]
		allowed := l.allowed
		if extra, ok := programs[f.pkg]; ok {
			known, allowed = true, extra
		}
		if !known {
			if !strangers[f.pkg] {
				t.Errorf("package %s is in no layer: add it to the table in layers_test.go", f.pkg)
			}
			strangers[f.pkg] = true
			continue
		}
		for _, imp := range f.imports {
			short, ours := strings.CutPrefix(imp, module+"/")
			if !ours || short == f.pkg || slices.Contains(allowed, short) {
				continue
			}
			// A test may reach for anything below its package, and for the
			// means of testing.
			if below, ok := byName[short]; f.test && (slices.Contains(testImports, short) || ok && below.row < l.row) {
				continue
			}
			t.Errorf("%s imports %s: %s may import only %s", f.path, short, f.pkg, orNothing(allowed))
		}
	}
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing of this module"
	}
	sorted := slices.Clone(list)
	sort.Strings(sorted)
	return strings.Join(sorted, ", ")
}

// TestFakeStaysInTests: the product never runs code without isolation because
// somebody wired the fake engine or the suite into it.
func TestFakeStaysInTests(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || strings.HasPrefix(f.pkg, "internal/sandbox/sandboxtest") || f.pkg == "internal/sandbox/fake" || f.pkg == "internal/batch/batchtest" {
			continue
		}
		for _, imp := range f.imports {
			if imp == module+"/internal/sandbox/fake" || imp == module+"/internal/batch/batchtest" || imp == module+"/internal/sandbox/sandboxtest" || imp == "testing" ||
				imp == module+"/internal/guest/guesttest" ||
				imp == module+"/internal/batch/kaggle/kaggletest" && f.pkg != "test/kaggle/fake" ||
				imp == module+"/internal/batch/runpod/runpodtest" && f.pkg != "test/runpod/fake" {
				t.Errorf("%s imports %s outside a test", f.path, imp)
			}
		}
	}
}

// TestGVisorHasOneDoor keeps the embedded runtime's API, which has no
// promises of stability, behind one package.
func TestGVisorHasOneDoor(t *testing.T) {
	for _, f := range sources(t) {
		for _, imp := range f.imports {
			if strings.HasPrefix(imp, "gvisor.dev/gvisor/") && f.pkg != "internal/sandbox/gvisor/supervisor" {
				t.Errorf("%s imports %s: only internal/sandbox/gvisor/supervisor may", f.path, imp)
			}
		}
	}
}
