package guest

import (
	"embed"
	"io/fs"
)

// Dir is where a sandbox has the guest's files, read-only.
const Dir = "/opt/sallyport"

// FilesDir is a directory of a sandbox whose files the guest copies into
// /workspace before it is ready. It need not exist.
const FilesDir = "/opt/sallyport-files"

// ModesFile is a file of a sandbox with the modes that those files get in
// /workspace, where they differ: records of an octal number, a space, a path
// relative to FilesDir, and a zero byte. It need not exist.
const ModesFile = FilesDir + ".modes"

//go:embed sallyport_guest/*.py
var sources embed.FS

// Files returns the guest's sources, as they lie in [Dir].
func Files() fs.FS { return sources }

// Argv is the command line of a container's first process.
func Argv(python string) []string {
	return []string{python, "-I", "-S", "-X", "utf8", Dir + "/sallyport_guest/__main__.py"}
}

// Environ is the environment of a sandbox, in which nothing is of the host.
func Environ() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=/workspace",
		"TMPDIR=/tmp",
		"LANG=C.UTF-8",
		"USER=sandbox",
		"PYTHONDONTWRITEBYTECODE=1",
		"MPLBACKEND=Agg",
		"MPLCONFIGDIR=/tmp/matplotlib",
	}
}

// Variables of the environment that tell a guest whose sandbox has no root of
// its own where things are. The guest removes them.
const (
	WorkspaceEnv = "SALLYPORT_WORKSPACE" // instead of /workspace
	FilesEnv     = "SALLYPORT_FILES"     // instead of FilesDir
)
