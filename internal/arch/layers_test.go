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
	{"cmd/sallyport", 90, []string{"internal/cli", "internal/procfs", "internal/sandbox/gvisor/cell", "internal/sandbox/process"}},

	{"internal/cli", 80, []string{
		"internal/accounting", "internal/carbon", "internal/carbon/codecarbon", "internal/carbon/hardware", "internal/carbon/intensity", "internal/ledger",
		"internal/catalog", "internal/hidden", "internal/pins", "internal/signature", "internal/terminal",
		"internal/control", "internal/private", "internal/session",
		"internal/mcpserver", "internal/broker", "internal/bridge", "internal/policy", "internal/runs",
		"internal/upstream", "internal/upstream/definitions", "internal/upstream/library", "internal/upstream/secret", "internal/sandbox/gvisor", "internal/sandbox/container",
		"internal/image", "internal/image/archive", "internal/image/build", "internal/image/flatten", "internal/image/registry", "internal/sandbox/hostroot",
		"internal/sandbox", "internal/sandbox/kaggle", "internal/sandbox/runpod", "internal/runpodtools", "internal/settings", "internal/snapshot", "internal/memory", "internal/usertools", "internal/state",
		"internal/worker", "internal/sandbox/process", "internal/sandbox/runpod/job", "internal/deploy", "internal/sandbox/runpod/rest",
	}},
	{"internal/accounting", 65, []string{
		"internal/broker", "internal/carbon", "internal/carbon/codecarbon", "internal/carbon/hardware", "internal/carbon/intensity",
		"internal/ledger", "internal/runs", "internal/session", "internal/state",
	}},
	{"internal/runpodtools", 65, []string{"internal/broker", "internal/sandbox/runpod"}},
	{"internal/mcpserver", 70, []string{"internal/broker", "internal/runpodtools", "internal/upstream/jsonrpc", "internal/toon"}},
	{"internal/broker", 60, []string{
		"internal/carbon", "internal/catalog", "internal/pins",
		"internal/bridge", "internal/session", "internal/policy", "internal/runs", "internal/sandbox", "internal/snapshot", "internal/state", "internal/wire",
	}},
	{"internal/runs", 52, []string{"internal/sandbox", "internal/state"}},
	{"internal/deploy", 55, []string{"internal/sandbox/runpod/rest"}},
	{"internal/worker", 55, []string{"internal/sandbox", "internal/sandbox/runpod/job", "internal/session", "internal/state", "internal/wire"}},
	{"internal/control", 52, []string{"internal/private", "internal/session"}},
	{"internal/session", 51, []string{"internal/sandbox", "internal/snapshot", "internal/state", "internal/guest", "internal/wire", "internal/budget"}},
	{"internal/bridge", 50, []string{
		"internal/catalog", "internal/hidden", "internal/pins", "internal/signature",
		"internal/memory", "internal/usertools", "internal/state", "internal/policy", "internal/upstream", "internal/upstream/jsonrpc", "internal/wire",
	}},

	{"internal/catalog", 45, []string{"internal/hidden", "internal/search", "internal/signature", "internal/state"}},
	{"internal/pins", 44, []string{"internal/hidden", "internal/state"}},
	{"internal/signature", 44, []string{"internal/hidden", "internal/upstream/jsonrpc"}},
	{"internal/carbon/intensity", 40, []string{"internal/carbon", "internal/state"}},
	{"internal/carbon/codecarbon", 40, []string{"internal/state"}},
	{"internal/carbon/codecarbon/codecarbontest", 30, nil},
	{"internal/ledger", 40, []string{"internal/state"}},
	{"internal/memory", 40, []string{"internal/state"}},
	{"internal/usertools", 40, []string{"internal/state"}},
	{"internal/policy", 40, []string{"internal/sandbox"}},
	{"internal/upstream", 42, []string{
		"internal/upstream/definitions", "internal/upstream/child", "internal/upstream/jsonrpc",
		"internal/upstream/remote", "internal/budget", "internal/state",
	}},
	{"internal/upstream/remote", 41, []string{"internal/budget", "internal/upstream/jsonrpc", "internal/upstream/tail"}},
	{"internal/upstream/library", 41, []string{"internal/state", "internal/upstream/definitions"}},
	{"internal/upstream/definitions", 40, nil},
	{"internal/upstream/secret", 40, nil},
	{"internal/upstream/child", 40, []string{"internal/upstream/tail"}},
	{"internal/upstream/jsonrpc", 40, []string{"internal/budget", "internal/upstream/tail"}},
	{"internal/upstream/tail", 39, nil},

	{"internal/sandbox/gvisor/cell", 32, []string{"internal/sandbox/gvisor", "internal/sandbox/hostroot"}},
	{"internal/sandbox/container", 31, []string{"internal/sandbox", "internal/guest", "internal/state"}},
	{"internal/sandbox/gvisor", 31, []string{"internal/private", "internal/sandbox/place", "internal/image", "internal/sandbox", "internal/sandbox/hostroot", "internal/guest"}},
	{"internal/sandbox/process", 31, []string{"internal/private", "internal/sandbox/place", "internal/sandbox", "internal/sandbox/hostroot", "internal/guest"}},
	{"internal/sandbox/fake", 30, []string{"internal/sandbox", "internal/guest", "internal/wire"}},
	{"internal/sandbox/kaggle", 30, []string{"internal/sandbox"}},
	{"internal/sandbox/kaggle/kaggletest", 29, nil},
	{"internal/sandbox/runpod", 30, []string{"internal/sandbox", "internal/sandbox/runpod/job", "internal/state"}},
	{"internal/sandbox/runpod/runpodtest", 30, nil},
	{"internal/sandbox/sandboxtest", 52, []string{"internal/budget", "internal/sandbox", "internal/guest", "internal/session", "internal/wire"}},

	{"internal/sandbox/runpod/rest", 12, nil},
	{"internal/sandbox/runpod/job", 12, []string{"internal/sandbox"}},
	{"internal/sandbox/hostroot", 12, nil},
	{"internal/image/build", 20, []string{"internal/guest", "internal/image", "internal/image/archive", "internal/image/flatten", "internal/sandbox", "internal/sandbox/hostroot", "internal/wire"}},
	{"internal/image/archive", 13, []string{"internal/image", "internal/image/flatten"}},
	{"internal/image/registry", 13, []string{"internal/image", "internal/image/flatten"}},
	{"internal/image", 12, []string{"internal/image/flatten", "internal/private", "internal/state"}},
	{"internal/image/flatten", 10, nil},
	{"internal/guest", 12, []string{"internal/budget", "internal/private", "internal/wire"}},
	{"internal/sandbox", 11, nil},
	{"internal/carbon/hardware", 11, []string{"internal/carbon"}},
	{"internal/carbon", 10, nil},
	{"internal/sandbox/place", 10, []string{"internal/private"}},
	{"internal/procfs", 10, nil},
	{"internal/hidden", 10, nil},
	{"internal/terminal", 11, []string{"internal/hidden"}},
	{"internal/search", 10, []string{"internal/search/vectors"}},
	{"internal/search/vectors", 9, nil},
	{"internal/settings", 10, nil},
	{"internal/snapshot", 11, []string{"internal/private", "internal/state"}},
	{"internal/state", 10, []string{"internal/private"}},
	{"internal/private", 9, nil},
	{"internal/toon", 10, nil},
	{"internal/wire", 10, nil},
	{"internal/budget", 10, nil},
	{"internal/arch", 0, nil},
}

// Programs of the repository that are not the product. They may import the
// product's packages only where this says so.
var programs = map[string][]string{
	"bench":            nil,
	"bench/echoserver": nil,
	"bench/servers":    nil,
	"bench/search":     {"internal/search"},

	"bench/search/convert": nil,

	"scripts/carbontables":    nil,
	"scripts/notice":          nil,
	"scripts/report":          nil,
	"test/conformance/client": {"internal/upstream", "internal/upstream/definitions"},
	"test/engines":            {"internal/image", "internal/image/archive", "internal/image/flatten", "internal/sandbox", "internal/sandbox/container", "internal/sandbox/gvisor", "internal/sandbox/process", "internal/sandbox/sandboxtest", "internal/state"},
	"test/engines/matrix":     nil,
	"test/faults":             {"internal/sandbox/sandboxtest"},
	"test/endurance":          {"internal/sandbox/sandboxtest"},
	"test/proxies":            nil,
	"test/carbon/peer":        {"internal/carbon", "internal/carbon/codecarbon/codecarbontest"},
	"test/kaggle/fake":        {"internal/sandbox/kaggle/kaggletest"},
	"test/runpod/fake":        {"internal/sandbox/runpod/runpodtest"},

	"scripts/configuration": {"internal/settings"},

	"test/clients/goclient": nil,
}

// testImports are what tests of any package may import. The fake engine, the
// services' doubles and the suite are for tests alone.
var testImports = []string{"internal/sandbox", "internal/sandbox/fake", "internal/sandbox/kaggle/kaggletest", "internal/sandbox/runpod/runpodtest", "internal/sandbox/sandboxtest"}

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
		if f.test || strings.HasPrefix(f.pkg, "internal/sandbox/sandboxtest") || f.pkg == "internal/sandbox/fake" {
			continue
		}
		for _, imp := range f.imports {
			if imp == module+"/internal/sandbox/fake" || imp == module+"/internal/sandbox/sandboxtest" || imp == "testing" ||
				imp == module+"/internal/sandbox/kaggle/kaggletest" && f.pkg != "test/kaggle/fake" ||
				imp == module+"/internal/sandbox/runpod/runpodtest" && f.pkg != "test/runpod/fake" {
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
			if strings.HasPrefix(imp, "gvisor.dev/gvisor/") && f.pkg != "internal/sandbox/gvisor/cell" {
				t.Errorf("%s imports %s: only internal/sandbox/gvisor/cell may", f.path, imp)
			}
		}
	}
}
