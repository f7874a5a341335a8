//go:build linux

package wasi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

func TestArgumentsAndEnvironment(t *testing.T) {
	i := newInstance(t, Config{Args: []string{"python", "-c", ""}, Env: []string{"A=b"}})
	for _, tt := range []struct {
		sizes, get string
		want       []string
	}{{"args_sizes_get", "args_get", []string{"python", "-c", ""}}, {"environ_sizes_get", "environ_get", []string{"A=b"}}} {
		i.must(tt.sizes, atResult, atResult+4)
		count, size := i.u32(atResult), i.u32(atResult+4)
		if want := len(strings.Join(tt.want, "\x00")) + 1; int(count) != len(tt.want) || int(size) != want {
			t.Errorf("%s: %d and %d, want %d and %d", tt.sizes, count, size, len(tt.want), want)
		}
		i.must(tt.get, atVector, atBuffer)
		for n, want := range tt.want {
			if got := string(i.bytes(i.u32(uint32(atVector+4*n)), uint32(len(want)+1))); got != want+"\x00" {
				t.Errorf("%s: string %d is %q, want %q", tt.get, n, got, want)
			}
		}
		if errno := i.call(tt.get, atVector, 2<<16-2); errno != errFault {
			t.Errorf("%s past the memory's end: %v, want %v", tt.get, errno, errFault)
		}
	}
}

func TestClocks(t *testing.T) {
	i := newInstance(t, Config{Now: func() time.Time { return time.Unix(5, 7) }, Monotonic: func() time.Duration { return 11 }})
	for id, want := range []uint64{5e9 + 7, 11, 11, 11} {
		i.must("clock_time_get", uint64(id), 0, atResult)
		if got := i.u64(atResult); got != want {
			t.Errorf("clock %d shows %d, want %d", id, got, want)
		}
		i.must("clock_res_get", uint64(id), atResult)
	}
	for _, name := range []string{"clock_time_get", "clock_res_get"} {
		args := []uint64{4, 0, atResult}
		if name == "clock_res_get" {
			args = []uint64{4, atResult}
		}
		if errno := i.call(name, args...); errno != errInvalid {
			t.Errorf("%s of clock 4: %v, want %v", name, errno, errInvalid)
		}
	}
	// Without a clock of the test's, time passes and does not go back.
	i = newInstance(t, Config{})
	var last uint64
	for range 100 {
		i.must("clock_time_get", clockMonotonic, 0, atResult)
		if now := i.u64(atResult); now < last {
			t.Errorf("the monotonic clock went from %d to %d", last, now)
		} else {
			last = now
		}
	}
}

func TestRandom(t *testing.T) {
	i := newInstance(t, Config{Rand: strings.NewReader("random")})
	i.must("random_get", atBuffer, 6)
	if got := string(i.bytes(atBuffer, 6)); got != "random" {
		t.Errorf("got %q, want what the source has", got)
	}
	if errno := i.call("random_get", atBuffer, 6); errno != errIO {
		t.Errorf("without a source: %v, want %v", errno, errIO)
	}
}

func TestExit(t *testing.T) {
	i := newInstance(t, Config{})
	_, err := i.mod.ExportedFunction("proc_exit").Call(i.ctx, 42)
	if exit, ok := errors.AsType[ExitError](err); !ok || exit.Code != 42 {
		t.Errorf("got %v, want an exit with code 42", err)
	}
}

func TestFiles(t *testing.T) {
	i := newInstance(t, Config{})
	fd := i.mustOpen("workspace/f", openCreate|openExclusive, readWrite)
	if fd != rootFD+1 {
		t.Errorf("got descriptor %d, want the lowest that is free", fd)
	}
	if n, errno := i.write(fd, "hello world"); n != 11 || errno != success {
		t.Fatalf("write: %d, %v", n, errno)
	}
	for _, tt := range []struct {
		offset int64
		whence uint64
		want   uint64
		errno  Errno
	}{
		{0, seekCur, 11, success},
		{-5, seekEnd, 6, success},
		{1, seekCur, 7, success},
		{-8, seekCur, 7, errInvalid},
		{math.MaxInt64, seekCur, 7, errInvalid},
		{math.MinInt64, seekEnd, 7, errInvalid},
		{math.MaxInt64, seekSet, math.MaxInt64, success},
		{0, 3, math.MaxInt64, errInvalid},
		{6, seekSet, 6, success},
	} {
		errno := i.call("fd_seek", fd, uint64(tt.offset), tt.whence, atResult)
		i.must("fd_tell", fd, atResult)
		if got := i.u64(atResult); errno != tt.errno || got != tt.want {
			t.Errorf("seek %d from %d: %v, at %d, want %v, at %d", tt.offset, tt.whence, errno, got, tt.errno, tt.want)
		}
	}
	if got, errno := i.read(fd, 100); got != "world" || errno != success {
		t.Errorf("read: %q, %v", got, errno)
	}
	if got, errno := i.read(fd, 100); got != "" || errno != success {
		t.Errorf("read at the end: %q, %v", got, errno)
	}
	// Several vectors, an empty one among them.
	ptr, n := i.vector(atBuffer, 3, 1<<31, 0, atBuffer+10, 4)
	i.must("fd_pread", fd, ptr, n, 2, atResult)
	if got := string(i.bytes(atBuffer, 3)) + string(i.bytes(atBuffer+10, 4)); got != "llo wor" || i.u32(atResult) != 7 {
		t.Errorf("pread: %q, %d bytes", got, i.u32(atResult))
	}
	i.put(atBuffer, "HE")
	ptr, n = i.vector(atBuffer, 2)
	i.must("fd_pwrite", fd, ptr, n, 0, atResult)
	i.must("fd_filestat_set_size", fd, 7)
	i.must("fd_filestat_set_times", fd, 1e9, 2e9, setAtime|setMtime)
	i.must("fd_filestat_get", fd, atResult)
	if kind, size, atime, mtime := i.bytes(atResult+16, 1)[0], i.u64(atResult+32), i.u64(atResult+40), i.u64(atResult+48); kind != byte(memfs.Regular) || size != 7 || atime != 1e9 || mtime != 2e9 {
		t.Errorf("stat: kind %d, %d bytes, times %d and %d", kind, size, atime, mtime)
	}
	for _, sync := range []string{"fd_sync", "fd_datasync"} {
		i.must(sync, fd)
	}
	i.must("fd_advise", fd, 0, 10, 1)
	i.must("fd_close", fd)
	if errno := i.call("fd_close", fd); errno != errBadFile {
		t.Errorf("close twice: %v, want %v", errno, errBadFile)
	}
	appending := i.mustOpen("workspace/f", 0, readWrite)
	i.must("fd_fdstat_set_flags", appending, flagAppend)
	if n, errno := i.write(appending, "!"); n != 1 || errno != success {
		t.Errorf("append: %d, %v", n, errno)
	}
	i.must("fd_fdstat_get", appending, atResult)
	if flags := i.bytes(atResult+2, 1)[0]; flags != flagAppend {
		t.Errorf("the flags are %d, want %d", flags, flagAppend)
	}
	i.must("fd_seek", appending, 0, seekSet, atResult)
	if got, _ := i.read(appending, 100); got != "HEllo w!" {
		t.Errorf("the file has %q, want %q", got, "HEllo w!")
	}
}

func TestOpenModes(t *testing.T) {
	i := newInstance(t, Config{OpenFiles: 20})
	readOnly := i.mustOpen("opt/program/main.py", 0, rightRead)
	if _, errno := i.write(readOnly, "x"); errno != errBadFile {
		t.Errorf("write to what is open for reading: %v, want %v", errno, errBadFile)
	}
	for _, tt := range []struct {
		path           string
		oflags, rights uint64
		want           Errno
	}{
		{"opt/program/main.py", 0, readWrite, memfs.ErrReadOnly},
		{"opt/program/main.py", openTruncate, rightRead, memfs.ErrReadOnly},
		{"opt/program/main.py", openDirectory, rightRead, errNotDir},
		{"opt/program", 0, readWrite, memfs.ErrIsDir},
		{"opt/program", openDirectory, rightRead, success},
		{"opt/program/new", openCreate, readWrite, memfs.ErrReadOnly},
		{"workspace/none", 0, rightRead, memfs.ErrNotExist},
		{"workspace/new", openCreate, rightRead, success},
		{"workspace/new", openCreate | openExclusive, rightRead, memfs.ErrExist},
		{"workspace/new", 1 << 4, rightRead, errInvalid},
		{"", 0, rightRead, memfs.ErrNotExist},
		{"a\x00b", 0, rightRead, errInvalid},
		{strings.Repeat("x", 4097), 0, rightRead, errNameTooLong},
		{"../../../dev/null", 0, readWrite, success},
	} {
		if fd, errno := i.open(tt.path, tt.oflags, tt.rights); errno != tt.want {
			t.Errorf("open %.30q with %d: %v, want %v", tt.path, tt.oflags, errno, tt.want)
		} else if errno == success {
			i.must("fd_close", fd)
		}
	}
	var fds []uint64
	for len(fds) < 100 {
		fd, errno := i.open("dev/null", 0, rightRead)
		if errno != success {
			if errno != errTooManyFiles || len(fds) != 15 {
				t.Errorf("after %d more descriptors: %v, want %v after 15", len(fds), errno, errTooManyFiles)
			}
			break
		}
		fds = append(fds, fd)
	}
	if got := i.host.Descriptors(); got != 16 {
		t.Errorf("%d descriptors are open, want 16", got)
	}
}

func TestPaths(t *testing.T) {
	i := newInstance(t, Config{})
	one := func(name, path string) Errno {
		ptr, n := i.put(atPath, path)
		return i.call(name, rootFD, ptr, n)
	}
	two := func(name, a, b string) Errno {
		p, n := i.put(atPath, a)
		p2, n2 := i.put(atPath2, b)
		switch name {
		case "path_symlink":
			return i.call(name, p, n, rootFD, p2, n2)
		case "path_link":
			return i.call(name, rootFD, 0, p, n, rootFD, p2, n2)
		}
		return i.call(name, rootFD, p, n, rootFD, p2, n2)
	}
	stat := func(path string, flags uint64) (memfs.Kind, Errno) {
		ptr, n := i.put(atPath, path)
		errno := i.call("path_filestat_get", rootFD, flags, ptr, n, atResult)
		return memfs.Kind(i.bytes(atResult+16, 1)[0]), errno
	}
	i.mustOpen("workspace/f", openCreate, readWrite)
	for _, tt := range []struct {
		what string
		got  Errno
		want Errno
	}{
		{"mkdir", one("path_create_directory", "workspace/d"), success},
		{"mkdir again", one("path_create_directory", "workspace/d"), memfs.ErrExist},
		{"mkdir at the root", one("path_create_directory", "new"), memfs.ErrReadOnly},
		{"symlink", two("path_symlink", "../f", "workspace/d/l"), success},
		{"link", two("path_link", "workspace/f", "workspace/d/h"), success},
		{"link across", two("path_link", "workspace/f", "tmp/h"), memfs.ErrCrossVolume},
		{"rename", two("path_rename", "workspace/d/h", "workspace/h"), success},
		{"rename across", two("path_rename", "workspace/h", "tmp/h"), memfs.ErrCrossVolume},
		{"rmdir a full one", one("path_remove_directory", "workspace/d"), memfs.ErrNotEmpty},
		{"unlink a directory", one("path_unlink_file", "workspace/d"), memfs.ErrIsDir},
		{"rmdir a file", one("path_remove_directory", "workspace/h"), errNotDir},
		{"unlink", one("path_unlink_file", "workspace/h"), success},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", tt.what, tt.got, tt.want)
		}
	}
	if kind, errno := stat("workspace/d/l", 0); kind != memfs.Symlink || errno != success {
		t.Errorf("the link is %d, %v", kind, errno)
	}
	if kind, errno := stat("workspace/d/l", lookupFollow); kind != memfs.Regular || errno != success {
		t.Errorf("the link leads to %d, %v", kind, errno)
	}
	ptr, n := i.put(atPath, "workspace/d/l")
	for size, want := range map[uint64]string{100: "../f", 2: "..", 0: ""} {
		i.must("path_readlink", rootFD, ptr, n, atBuffer, size, atResult)
		if got := string(i.bytes(atBuffer, i.u32(atResult))); got != want {
			t.Errorf("the link's target in %d bytes is %q, want %q", size, got, want)
		}
	}
	if errno := i.call("path_open", rootFD, 0, ptr, n, 0, rightRead, 0, 0, atResult); errno != memfs.ErrLoop {
		t.Errorf("open a link without following: %v, want %v", errno, memfs.ErrLoop)
	}
	i.must("path_filestat_set_times", rootFD, lookupFollow, ptr, n, 1e9, 0, setAtime|setMtimeNow)
	for _, flags := range []uint64{setAtime | setAtimeNow, setMtime | setMtimeNow, 1 << 4, 1 << 31} {
		if errno := i.call("path_filestat_set_times", rootFD, 0, ptr, n, 0, 0, flags); errno != errInvalid {
			t.Errorf("times with the flags %d: %v, want %v", flags, errno, errInvalid)
		}
	}
	dir := i.mustOpen("workspace/d", openDirectory, rightRead)
	ptr, n = i.put(atPath, "../f")
	i.must("path_filestat_get", dir, 0, ptr, n, atResult)
	for _, fd := range []uint64{0, 100, math.MaxUint32} {
		if errno := i.call("path_unlink_file", fd, ptr, n); errno != errBadFile && errno != errNotDir {
			t.Errorf("a path relative to descriptor %d: %v", fd, errno)
		}
	}
}

func TestReaddir(t *testing.T) {
	i := newInstance(t, Config{})
	want := ". .."
	for n := range 40 {
		name := fmt.Sprintf("%d%s", n, strings.Repeat("x", n*6))
		i.must("fd_close", i.mustOpen("workspace/"+name, openCreate, rightRead))
		want += " " + name
	}
	dir := i.mustOpen("workspace", openDirectory, rightRead)
	for _, size := range []uint32{300, 512, 1000, 60000} {
		if got := join(i.names(dir, size)); got != want {
			t.Errorf("with a buffer of %d bytes: %.100q, want %.100q", size, got, want)
		}
	}
	if got := join(i.names(rootFD, 4096)); !strings.Contains(got, "opt") || !strings.Contains(got, "workspace") {
		t.Errorf("the root has %q", got)
	}
	i.must("fd_readdir", dir, atBuffer, 1000, math.MaxUint64, atResult)
	if n := i.u32(atResult); n != 0 {
		t.Errorf("a cookie past the end gave %d bytes, want 0", n)
	}
}

func TestPreopen(t *testing.T) {
	i := newInstance(t, Config{})
	i.must("fd_prestat_get", rootFD, atResult)
	if tag, n := i.bytes(atResult, 1)[0], i.u32(atResult+4); tag != 0 || n != 1 {
		t.Errorf("the preopened descriptor has the tag %d and a name of %d bytes", tag, n)
	}
	i.must("fd_prestat_dir_name", rootFD, atResult, 1)
	if got := string(i.bytes(atResult, 1)); got != "/" {
		t.Errorf("its name is %q", got)
	}
	fd := i.mustOpen("workspace", 0, rightRead)
	for _, fd := range []uint64{0, 1, 2, fd, fd + 1, math.MaxUint32} {
		if errno := i.call("fd_prestat_get", fd, atResult); errno != errBadFile {
			t.Errorf("descriptor %d: %v, want %v", fd, errno, errBadFile)
		}
	}
}

// TestStreamsAreNoTerminals: the C library takes a character device for a terminal unless
// it has a right to seek.
func TestStreamsAreNoTerminals(t *testing.T) {
	i := newInstance(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	for fd, want := range []uint64{rightRead, rightWrite, rightWrite} {
		i.must("fd_fdstat_get", uint64(fd), atResult)
		if kind, rights := i.bytes(atResult, 1)[0], i.u64(atResult+8); kind != byte(memfs.Device) || rights&readWrite != want || rights&rightSeek == 0 {
			t.Errorf("descriptor %d: kind %d, rights %b", fd, kind, rights)
		}
		if errno := i.call("fd_seek", uint64(fd), 0, seekCur, atResult); errno != errSeekPipe {
			t.Errorf("seek on descriptor %d: %v, want %v", fd, errno, errSeekPipe)
		}
		i.must("fd_filestat_get", uint64(fd), atResult)
	}
	if got, errno := i.read(0, 10); got != "" || errno != success {
		t.Errorf("read without a stream: %q, %v, want the end", got, errno)
	}
	if n, errno := i.write(1, "lost"); n != 4 || errno != success {
		t.Errorf("write without a stream: %d, %v", n, errno)
	}
}

func TestSaveAndRestore(t *testing.T) {
	i := newInstance(t, Config{})
	file := i.mustOpen("workspace/f", openCreate, readWrite)
	if _, errno := i.write(file, "content"); errno != success {
		t.Fatal(errno)
	}
	i.must("fd_seek", file, 3, seekSet, atResult)
	other := i.mustOpen("tmp/gone", openCreate, readWrite)
	i.must("fd_fdstat_set_flags", other, flagAppend)
	if _, errno := i.write(other, "unlinked"); errno != success {
		t.Fatal(errno)
	}
	ptr, n := i.put(atPath, "tmp/gone")
	i.must("path_unlink_file", rootFD, ptr, n)
	closed := i.mustOpen("dev/null", 0, rightRead)
	library := i.mustOpen("opt/program/main.py", 0, rightRead)
	i.must("fd_close", closed)
	i.must("fd_close", 2)
	i.must("clock_time_get", clockMonotonic, 0, atResult)
	now := i.u64(atResult)
	var saved bytes.Buffer
	if err := i.host.Save(&saved); err != nil {
		t.Fatal(err)
	}
	data := bytes.Clone(saved.Bytes())
	early := func() time.Duration { return 0 } // another machine's clock
	host, err := Restore(Config{Waiter: i.waiter, Stdin: -1, Stdout: -1, Stderr: -1, Monotonic: early}, newBase(t), quotas, &saved)
	if err != nil {
		t.Fatal(err)
	}
	i.host.Close()
	i.host, i.ctx = host, WithHost(t.Context(), host)
	if got, errno := i.read(file, 10); got != "tent" || errno != success {
		t.Errorf("the file goes on with %q, %v", got, errno)
	}
	if n, errno := i.write(other, "!"); n != 1 || errno != success {
		t.Errorf("append to the file without a name: %d, %v", n, errno)
	}
	ptr, n = i.vector(atBuffer, 20)
	i.must("fd_pread", other, ptr, n, 0, atResult)
	if got := string(i.bytes(atBuffer, i.u32(atResult))); got != "unlinked!" {
		t.Errorf("the file without a name has %q", got)
	}
	if got, errno := i.read(library, 5); got != "print" || errno != success {
		t.Errorf("the program's file has %q, %v", got, errno)
	}
	for _, fd := range []uint64{2, closed} {
		if errno := i.call("fd_tell", fd, atResult); errno != errBadFile {
			t.Errorf("descriptor %d, which was closed: %v", fd, errno)
		}
	}
	i.must("fd_prestat_get", rootFD, atResult)
	i.must("clock_time_get", clockMonotonic, 0, atResult)
	if got := i.u64(atResult); got < now {
		t.Errorf("the monotonic clock went from %d back to %d", now, got)
	}
	for n := range data {
		if n < len(data)-200 && n%97 != 0 {
			continue
		}
		if _, err := Restore(Config{}, newBase(t), quotas, bytes.NewReader(data[:n])); err == nil {
			t.Errorf("%d of %d bytes were restored", n, len(data))
		}
	}
	if _, err := Restore(Config{OpenFiles: 4}, newBase(t), quotas, bytes.NewReader(data)); err == nil {
		t.Error("more descriptors were restored than are allowed")
	}
}

func TestStreams(t *testing.T) {
	cfg, stdin, stdout := streams(t)
	i := newInstance(t, cfg)
	if _, err := stdin.WriteString("first"); err != nil {
		t.Fatal(err)
	}
	if got, errno := i.read(0, 3); got != "fir" || errno != success {
		t.Errorf("read: %q, %v", got, errno)
	}
	if got, errno := i.read(0, 30); got != "st" || errno != success {
		t.Errorf("read: %q, %v", got, errno)
	}
	if len(i.waiter.calls) != 0 {
		t.Errorf("it waited for what was there: %v", i.waiter.calls)
	}
	i.must("fd_fdstat_set_flags", 0, flagNonblock)
	if _, errno := i.read(0, 1); errno != errAgain {
		t.Errorf("read without blocking: %v, want %v", errno, errAgain)
	}
	i.must("fd_fdstat_set_flags", 0, 0)
	i.waiter.answers = []Outcome{Interrupted}
	if _, errno := i.read(0, 1); errno != errInterrupted {
		t.Errorf("read when it is interrupted: %v, want %v", errno, errInterrupted)
	}
	go stdin.WriteString("later")
	if got, errno := i.read(0, 30); got != "later" || errno != success {
		t.Errorf("read after a wait: %q, %v", got, errno)
	}
	stdin.Close()
	if got, errno := i.read(0, 30); got != "" || errno != success {
		t.Errorf("read at the end: %q, %v", got, errno)
	}
	if _, errno := i.read(1, 1); errno != errBadFile {
		t.Errorf("read from descriptor 1: %v, want %v", errno, errBadFile)
	}
	if _, errno := i.write(0, "x"); errno != errBadFile {
		t.Errorf("write to descriptor 0: %v, want %v", errno, errBadFile)
	}
	// More than a pipe holds is written as a reader takes it.
	big := strings.Repeat("0123456789", 6000)
	got := make(chan string)
	go func() {
		p := make([]byte, 10*len(big))
		n, _ := io.ReadFull(stdout, p)
		got <- string(p[:n])
	}()
	for range 10 {
		if n, errno := i.write(1, big); n != len(big) || errno != success {
			t.Fatalf("wrote %d of %d bytes, %v", n, len(big), errno)
		}
	}
	if s := <-got; s != strings.Repeat(big, 10) {
		t.Errorf("the reader has %d bytes of %d, or others", len(s), 10*len(big))
	}
	// A write that is interrupted reports what was written.
	wrote := 0
	for len(i.waiter.answers) == 0 && wrote < 1<<20 {
		i.waiter.answers = []Outcome{Interrupted}
		n, errno := i.write(1, big)
		wrote += n
		if errno == errInterrupted || n < len(big) {
			break
		}
		i.waiter.answers = nil
	}
	i.waiter.answers = []Outcome{Interrupted}
	if _, errno := i.write(1, big); errno != errInterrupted {
		t.Errorf("write to a full pipe when it is interrupted: %v, want %v", errno, errInterrupted)
	}
	stdout.Close()
	if _, errno := i.write(1, "x"); errno != errPipe {
		t.Errorf("write to a closed pipe: %v, want %v", errno, errPipe)
	}
}

// TestWaiterEndsTheInstance: the panic of a waiter comes out of the call.
func TestWaiterEndsTheInstance(t *testing.T) {
	cfg, _, _ := streams(t)
	i := newInstance(t, cfg)
	killed := errors.New("killed")
	i.waiter.panics = killed
	ptr, n := i.vector(atBuffer, 1)
	if _, err := i.mod.ExportedFunction("fd_read").Call(i.ctx, 0, ptr, n, atResult); !errors.Is(err, killed) {
		t.Errorf("got %v, want %v", err, killed)
	}
	if _, errno := i.read(0, 0); errno != success {
		t.Errorf("read nothing: %v", errno)
	}
}
