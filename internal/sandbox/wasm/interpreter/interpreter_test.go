package interpreter

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

func TestDigest(t *testing.T) {
	module, err := Module()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(append(module, Library()...))
	if got := hex.EncodeToString(sum[:]); got != Digest() {
		t.Errorf("the files have the digest %s, digest.go says %s", got, Digest())
	}
}

// signature writes the types of a function as Go does.
func signature(name string, f api.FunctionDefinition) string {
	var params, results []string
	for _, p := range f.ParamTypes() {
		params = append(params, api.ValueTypeName(p))
	}
	for _, r := range f.ResultTypes() {
		results = append(results, api.ValueTypeName(r))
	}
	text := fmt.Sprintf("%s(%s) %s", name, strings.Join(params, " "), strings.Join(results, " "))
	return strings.TrimSpace(text)
}

// TestSurface: what the interpreter asks of the host, and what it offers. Code
// from outside runs in it, so each import is a way out of the sandbox.
func TestSurface(t *testing.T) {
	module, err := Module()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	m, err := r.CompileModule(ctx, module)
	if err != nil {
		t.Fatal(err)
	}
	var imports []string
	for _, f := range m.ImportedFunctions() {
		from, name, _ := f.Import()
		if from == "wasi_snapshot_preview1" {
			from = "wasi"
		}
		imports = append(imports, from+"."+name)
	}
	wantImports := strings.Fields(`
		sallyport.fuel
		wasi.clock_res_get wasi.clock_time_get
		wasi.environ_get wasi.environ_sizes_get
		wasi.fd_advise wasi.fd_close wasi.fd_datasync wasi.fd_fdstat_get wasi.fd_fdstat_set_flags
		wasi.fd_filestat_get wasi.fd_filestat_set_size wasi.fd_filestat_set_times
		wasi.fd_pread wasi.fd_prestat_dir_name wasi.fd_prestat_get wasi.fd_pwrite wasi.fd_read
		wasi.fd_readdir wasi.fd_seek wasi.fd_sync wasi.fd_tell wasi.fd_write
		wasi.path_create_directory wasi.path_filestat_get wasi.path_filestat_set_times
		wasi.path_link wasi.path_open wasi.path_readlink wasi.path_remove_directory
		wasi.path_rename wasi.path_symlink wasi.path_unlink_file
		wasi.poll_oneoff wasi.proc_exit wasi.random_get wasi.sched_yield`)
	slices.Sort(imports)
	if !slices.Equal(imports, wantImports) {
		t.Errorf("imported functions:\n got %q\nwant %q", imports, wantImports)
	}
	if n := len(m.ImportedMemories()); n > 0 {
		t.Errorf("%d imported memories, want none", n)
	}
	var exports []string
	for name, f := range m.ExportedFunctions() {
		exports = append(exports, signature(name, f))
	}
	for name, memory := range m.ExportedMemories() {
		most, bounded := memory.Max()
		exports = append(exports, fmt.Sprint(name, " ", most, " ", bounded))
	}
	slices.Sort(exports)
	wantExports := []string{
		"_initialize()", "boot() i32", "interrupt()", "load_data()", "memory 65536 true", "run() i64",
	}
	if !slices.Equal(exports, wantExports) {
		t.Errorf("exports:\n got %q\nwant %q", exports, wantExports)
	}
}

// TestLibrary: every file can be read, no module is there as source, and what
// the interpreter needs to start and to find time zones is there.
func TestLibrary(t *testing.T) {
	archive, err := zip.NewReader(strings.NewReader(Library()), int64(len(Library())))
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{
		"encodings/utf_8.pyc": true, "asyncio/__init__.pyc": true, "sqlite3/__init__.pyc": true,
		"tzdata/zoneinfo/Europe/Berlin": true, "tzdata/zoneinfo/US/Eastern": true,
		"_sysconfigdata__wasi_wasm32-wasi.pyc": true,
	}
	for _, f := range archive.File {
		delete(missing, f.Name)
		r, err := f.Open()
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if strings.HasSuffix(f.Name, ".py") {
			t.Errorf("%s is there as source", f.Name)
		}
		// The magic number of 3.13, then flags: a hash that nobody checks.
		if strings.HasSuffix(f.Name, ".pyc") && !strings.HasPrefix(string(content), "\xf3\x0d\r\n\x01\x00\x00\x00") {
			t.Errorf("%s starts with %.8q", f.Name, content)
		}
	}
	for name := range missing {
		t.Errorf("%s is missing", name)
	}
}
