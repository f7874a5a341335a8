package wasi

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// moduleName is what instances import the functions from.
const moduleName = "wasi_snapshot_preview1"

// A call is a call of a host function by an instance.
type call struct {
	*Host
	ctx  context.Context
	mod  api.Module
	args []uint64
}

// A function is a host function. Its params are 'i' for an i32 and 'I' for an i64.
// All return an error number.
type function struct {
	name   string
	params string
	run    func(*call) Errno
}

// functions are those that CPython imports. What else preview 1 has, sockets and signals
// above all, no instance can even name.
func functions() []function {
	return []function{
		{"args_get", "ii", (*call).argsGet},
		{"args_sizes_get", "ii", (*call).argsSizesGet},
		{"clock_res_get", "ii", (*call).clockResGet},
		{"clock_time_get", "iIi", (*call).clockTimeGet},
		{"environ_get", "ii", (*call).environGet},
		{"environ_sizes_get", "ii", (*call).environSizesGet},
		{"fd_advise", "iIIi", (*call).fdAdvise},
		{"fd_close", "i", (*call).fdClose},
		{"fd_datasync", "i", (*call).fdSync},
		{"fd_fdstat_get", "ii", (*call).fdFdstatGet},
		{"fd_fdstat_set_flags", "ii", (*call).fdFdstatSetFlags},
		{"fd_filestat_get", "ii", (*call).fdFilestatGet},
		{"fd_filestat_set_size", "iI", (*call).fdFilestatSetSize},
		{"fd_filestat_set_times", "iIIi", (*call).fdFilestatSetTimes},
		{"fd_pread", "iiiIi", (*call).fdPread},
		{"fd_prestat_dir_name", "iii", (*call).fdPrestatDirName},
		{"fd_prestat_get", "ii", (*call).fdPrestatGet},
		{"fd_pwrite", "iiiIi", (*call).fdPwrite},
		{"fd_read", "iiii", (*call).fdRead},
		{"fd_readdir", "iiiIi", (*call).fdReaddir},
		{"fd_seek", "iIii", (*call).fdSeek},
		{"fd_sync", "i", (*call).fdSync},
		{"fd_tell", "ii", (*call).fdTell},
		{"fd_write", "iiii", (*call).fdWrite},
		{"path_create_directory", "iii", (*call).pathCreateDirectory},
		{"path_filestat_get", "iiiii", (*call).pathFilestatGet},
		{"path_filestat_set_times", "iiiiIIi", (*call).pathFilestatSetTimes},
		{"path_link", "iiiiiii", (*call).pathLink},
		{"path_open", "iiiiiIIii", (*call).pathOpen},
		{"path_readlink", "iiiiii", (*call).pathReadlink},
		{"path_remove_directory", "iii", (*call).pathRemoveDirectory},
		{"path_rename", "iiiiii", (*call).pathRename},
		{"path_symlink", "iiiii", (*call).pathSymlink},
		{"path_unlink_file", "iii", (*call).pathUnlinkFile},
		{"poll_oneoff", "iiii", (*call).pollOneoff},
		{"random_get", "ii", (*call).randomGet},
		{"sched_yield", "", (*call).schedYield},
	}
}

// Instantiate adds the module wasi_snapshot_preview1 to a runtime. Its functions find
// the host of the calling instance in the context, see [WithHost].
func Instantiate(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(moduleName)
	for _, f := range functions() {
		var params []api.ValueType
		for _, p := range f.params {
			if p == 'I' {
				params = append(params, api.ValueTypeI64)
			} else {
				params = append(params, api.ValueTypeI32)
			}
		}
		run, n := f.run, len(params)
		b.NewFunctionBuilder().WithName(f.name).WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			c := call{Host: hostOf(ctx), ctx: ctx, mod: mod, args: stack[:n]}
			if c.attender != nil {
				c.attender.Attend()
			}
			stack[0] = uint64(run(&c))
		}), params, []api.ValueType{api.ValueTypeI32}).Export(f.name)
	}
	b.NewFunctionBuilder().WithName("proc_exit").WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, _ api.Module, stack []uint64) {
		panic(ExitError{uint32(stack[0])})
	}), []api.ValueType{api.ValueTypeI32}, nil).Export("proc_exit")
	_, err := b.Instantiate(ctx)
	return err
}

// ExitError is what a call ends with when the instance asks to exit.
type ExitError struct{ Code uint32 }

func (e ExitError) Error() string { return "the program has exited" }

func hostOf(ctx context.Context) *Host {
	h, ok := ctx.Value(contextKey{}).(*Host)
	if !ok {
		panic(errors.New("wasi: a call without a host"))
	}
	return h
}

// wait waits as the host's Waiter does.
func (c *call) wait(fd int, write bool, timeout time.Duration) Outcome {
	return c.cfg.Waiter.Wait(c.ctx, fd, write, timeout)
}

// u32 returns an argument of 32 bits.
func (c *call) u32(i int) uint32 { return uint32(c.args[i]) }

// bytes returns n bytes of the instance's memory. They are valid until the instance
// runs again.
func (c *call) bytes(ptr, n uint32) ([]byte, bool) {
	mem := c.mod.Memory()
	if mem == nil {
		return nil, false
	}
	return mem.Read(ptr, n)
}

// put32 stores a result.
func (c *call) put32(ptr, v uint32) Errno {
	p, ok := c.bytes(ptr, 4)
	if !ok {
		return errFault
	}
	binary.LittleEndian.PutUint32(p, v)
	return success
}

// put64 stores a result.
func (c *call) put64(ptr uint32, v uint64) Errno {
	p, ok := c.bytes(ptr, 8)
	if !ok {
		return errFault
	}
	binary.LittleEndian.PutUint64(p, v)
	return success
}

// maxPath bounds paths before they are copied.
const maxPath = 4096

// path returns the path of two arguments, its place and its length.
func (c *call) path(i int) (string, Errno) {
	n := c.u32(i + 1)
	p, ok := c.bytes(c.u32(i), n)
	switch {
	case !ok:
		return "", errFault
	case n > maxPath:
		return "", errNameTooLong
	}
	return string(p), success
}
