package sandboxtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// ChosenEngine returns the variables of programs that run on the engine that
// SALLYPORT_TEST_ENGINE names, or none for the one that the program chooses. For the
// engine wasm it gives the home what is compiled in SALLYPORT_TEST_COMPILED, a home, too:
// that saves each test some seconds. test/engine.py is the counterpart for pytest.
func ChosenEngine(home string) ([]string, error) {
	engine, compiled := os.Getenv("SALLYPORT_TEST_ENGINE"), os.Getenv("SALLYPORT_TEST_COMPILED")
	if engine == "" {
		return nil, nil
	}
	var failed error
	if compiled != "" {
		// The key that authenticates compiled code is among the snapshots.
		for _, dir := range []string{".cache/sallyport/wasm", ".local/state/sallyport/snapshots"} {
			failed = errors.Join(failed, linkFiles(filepath.Join(compiled, dir), filepath.Join(home, dir)))
		}
	}
	return []string{"SALLYPORT_ENGINE=" + engine}, failed
}

// linkFiles links the files of one folder into another, unless they are there already.
func linkFiles(from, to string) error {
	files, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	failed := errors.Join(err, os.MkdirAll(to, 0o700))
	for _, file := range files {
		if err := os.Link(filepath.Join(from, file.Name()), filepath.Join(to, file.Name())); !errors.Is(err, fs.ErrExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
