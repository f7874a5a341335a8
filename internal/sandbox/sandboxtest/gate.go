package sandboxtest

import (
	"os"
	"strings"
	"testing"
)

// MustRunEnv names the environment variable that lists the tests that must not
// be skipped: names or prefixes of names, separated by commas. A test that
// would skip fails if one of them matches. Otherwise a machine on which an
// engine silently does not work would look like one on which it passed.
const MustRunEnv = "SALLYPORT_MUST_RUN"

// Skip skips the test, or fails it if [MustRunEnv] lists name. Names are
// dotted, from general to specific: "gvisor.user.limits.memory".
func Skip(t testing.TB, name, reason string) {
	t.Helper()
	if mustRun(os.Getenv(MustRunEnv), name) {
		t.Fatalf("%s must run here (%s) but cannot: %s", name, MustRunEnv, reason)
	}
	t.Skipf("%s: %s", name, reason)
}

func mustRun(list, name string) bool {
	for _, entry := range strings.Split(list, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		if entry == "all" || entry == name || strings.HasPrefix(name, entry+".") {
			return true
		}
	}
	return false
}
