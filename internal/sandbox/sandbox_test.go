package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// plain is a run without any further power.
type plain struct{}

func (plain) Handle() sandbox.Handle                     { return sandbox.Handle{Backend: "plain"} }
func (plain) Wait(context.Context) (sandbox.Exit, error) { return sandbox.Exit{}, nil }
func (plain) Destroy(context.Context) error              { return nil }

// metered is one that meters.
type metered struct{ plain }

func (metered) Usage(context.Context) (sandbox.Usage, error) {
	return sandbox.Usage{MemoryBytes: 7}, nil
}

// decorator adds nothing and hides nothing.
type decorator struct{ sandbox.Run }

func (d decorator) Unwrap() sandbox.Run { return d.Run }

// opaque hides what it decorates.
type opaque struct{ sandbox.Run }

type engine struct{}

func (engine) Name() string                                                { return "engine" }
func (engine) Probe(context.Context) (*sandbox.Report, error)              { return nil, nil }
func (engine) Start(context.Context, *sandbox.Spec) (sandbox.Run, error)   { return nil, nil }
func (engine) Attach(context.Context, sandbox.Handle) (sandbox.Run, error) { return nil, nil }
func (engine) Close() error                                                { return nil }

type restorer struct{ engine }

func (restorer) Binding(context.Context, *sandbox.Spec) (string, error) { return "", nil }
func (restorer) Restore(context.Context, *sandbox.Spec, sandbox.Image) (sandbox.Run, error) {
	return plain{}, nil
}

type engineDecorator struct{ sandbox.Engine }

func (d engineDecorator) Unwrap() sandbox.Engine { return d.Engine }

func TestAs(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  sandbox.Run
		want bool
	}{
		{"itself", metered{}, true},
		{"not at all", plain{}, false},
		{"decorated", decorator{metered{}}, true},
		{"twice decorated", decorator{decorator{metered{}}}, true},
		{"decorated without it", decorator{decorator{plain{}}}, false},
		{"hidden", opaque{metered{}}, false},
		{"hidden in a decorator", decorator{opaque{metered{}}}, false},
		{"nothing inside", decorator{}, false},
		{"nil", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, ok := sandbox.As[sandbox.Meter](tt.run)
			if ok != tt.want {
				t.Fatalf("found: %v", ok)
			}
			if !ok {
				return
			}
			if u, err := m.Usage(t.Context()); err != nil || u.MemoryBytes != 7 {
				t.Errorf("found the wrong one: %+v, %v", u, err)
			}
		})
	}
	if _, ok := sandbox.As[sandbox.Restorer](engineDecorator{engineDecorator{restorer{}}}); !ok {
		t.Error("no Restorer behind two decorators of a backend")
	}
	if _, ok := sandbox.As[sandbox.Restorer](engineDecorator{engine{}}); ok {
		t.Error("a Restorer where there is none")
	}
	// The outermost one wins: a decorator may change what it passes on.
	d := decorator{metered{}}
	if got, _ := sandbox.As[sandbox.Run](d); got != sandbox.Run(d) {
		t.Errorf("got %T", got)
	}
}

func TestLimitsWithDefaults(t *testing.T) {
	if got := (sandbox.Limits{}).WithDefaults(); got != sandbox.DefaultLimits {
		t.Errorf("no limits become %+v", got)
	}
	// Every field but CPUs has a default, and one that is set is kept.
	typ := reflect.TypeFor[sandbox.Limits]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		var l sandbox.Limits
		field := reflect.ValueOf(&l).Elem().Field(i)
		if field.CanInt() {
			field.SetInt(12345)
		} else {
			field.SetFloat(1.5)
		}
		got := l.WithDefaults()
		if !reflect.DeepEqual(reflect.ValueOf(got).Field(i).Interface(), field.Interface()) {
			t.Errorf("%s: %v became %v", name, field, reflect.ValueOf(got).Field(i))
		}
		for j := range typ.NumField() {
			other := reflect.ValueOf(got).Field(j)
			if other.IsZero() && typ.Field(j).Name != "CPUs" {
				t.Errorf("with %s set, %s is unlimited", name, typ.Field(j).Name)
			}
		}
	}
}

func TestError(t *testing.T) {
	cause := fmt.Errorf("open it: %w", fs.ErrPermission)
	for _, tt := range []struct {
		name  string
		err   *sandbox.Error
		is    []error
		isNot []error
		text  string
	}{
		{
			"kind and cause", &sandbox.Error{Op: "start", Backend: "gvisor", Kind: sandbox.ErrStart, Err: cause},
			[]error{sandbox.ErrStart, cause, fs.ErrPermission}, []error{sandbox.ErrGone, sandbox.ErrInvalidSpec},
			"gvisor: start: open it: permission denied",
		},
		{
			"kind alone", &sandbox.Error{Op: "attach", Backend: "podman", Kind: sandbox.ErrGone},
			[]error{sandbox.ErrGone}, []error{fs.ErrPermission}, "podman: attach: sandbox is gone",
		},
		{
			"cause alone", &sandbox.Error{Op: "destroy", Backend: "gvisor", Err: cause},
			[]error{fs.ErrPermission}, []error{sandbox.ErrStart, sandbox.ErrGone}, "gvisor: destroy: open it: permission denied",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wrapped := fmt.Errorf("session x: %w", tt.err)
			for _, kind := range tt.is {
				if !errors.Is(wrapped, kind) {
					t.Errorf("is not %v", kind)
				}
			}
			for _, kind := range tt.isNot {
				if errors.Is(wrapped, kind) {
					t.Errorf("is %v", kind)
				}
			}
			if got := tt.err.Error(); got != tt.text {
				t.Errorf("text %q, want %q", got, tt.text)
			}
			var e *sandbox.Error
			if !errors.As(wrapped, &e) || e != tt.err {
				t.Error("not found by errors.As")
			}
		})
	}
}

// A report is printed and stored: what its numbers mean must not change.
func TestReportText(t *testing.T) {
	r := sandbox.Report{
		Backend: "x", Usable: true, Isolation: sandbox.KernelIsolation,
		Limits: map[sandbox.Resource]sandbox.LimitReport{
			sandbox.Memory: {Enforcement: sandbox.Soft, By: "watcher"},
			sandbox.CPU:    {},
		},
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"isolation":"kernel"`, `"memory":{"enforcement":"soft","by":"watcher"}`, `"cpu":{"enforcement":"absent","by":""}`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %s", b, want)
		}
	}
	order := []sandbox.Isolation{sandbox.NoIsolation, sandbox.PlatformIsolation, sandbox.ContainerIsolation, sandbox.WasmIsolation, sandbox.KernelIsolation}
	names := []string{"none", "platform", "container", "wasm", "kernel"}
	for i, l := range order {
		if l.String() != names[i] || i > 0 && l <= order[i-1] {
			t.Errorf("isolation %d is %q", i, l)
		}
	}
	if sandbox.Absent >= sandbox.Soft || sandbox.Soft >= sandbox.Hard {
		t.Error("limits are not ordered from absent to hard")
	}
	var zero sandbox.LimitReport
	if zero.Enforcement != sandbox.Absent || (sandbox.Report{}).Isolation != sandbox.NoIsolation {
		t.Error("a zero report promises something")
	}
}

// A handle survives being written down.
func TestHandleRoundTrip(t *testing.T) {
	for _, h := range []sandbox.Handle{
		{},
		{Backend: "gvisor", Version: 1, ID: "a-1"},
		{Backend: "k8s", Version: 3, ID: "z", Data: json.RawMessage(`{"pod":"x","n":9007199254740993}`)},
	} {
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var back sandbox.Handle
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, h) {
			t.Errorf("%+v comes back as %+v", h, back)
		}
	}
}

func TestMountPlace(t *testing.T) {
	m := sandbox.Mount{Source: "/home/u/project", Target: "/roots/project", Mode: sandbox.ReadOnly}
	for path, want := range map[string]string{
		"/home/u/project": "/roots/project", "/home/u/project/": "/roots/project", "/home/u/project/a/../b.csv": "/roots/project/b.csv", "/home/u/./project/..x": "/roots/project/..x",
		"/home/u/projects": "", "/home/u": "", "/": "", "": "", "project/a": "", "/home/u/project/../a": "", "/home/u/project/a/../../..": "",
	} {
		if got, ok := m.Place(path); got != want || ok != (want != "") {
			t.Errorf("Place(%q) = %q, %v, want %q", path, got, ok, want)
		}
	}
}

func TestCheckMounts(t *testing.T) {
	mount := func(source, target string, mode sandbox.MountMode) sandbox.Mount {
		return sandbox.Mount{Source: source, Target: target, Mode: mode}
	}
	for _, tt := range []struct {
		name   string
		mounts []sandbox.Mount
		want   string // in the error; empty: none
	}{
		{"none", nil, ""},
		{"several", []sandbox.Mount{mount("/a", "/mnt/a", "ro"), mount("/a", "/mnt/ab", "rw"), mount("/b", "/data", "copy")}, ""},
		{"relative", []sandbox.Mount{mount("a", "/mnt/a", "ro")}, "an absolute, clean path is needed"},
		{"unclean", []sandbox.Mount{mount("/a/../b", "/mnt/a", "ro")}, "an absolute, clean path is needed"},
		{"target relative", []sandbox.Mount{mount("/a", "mnt", "ro")}, "must be an absolute, clean path"},
		{"target leaves", []sandbox.Mount{mount("/a", "/mnt/../etc", "ro")}, "must be an absolute, clean path"},
		{"root", []sandbox.Mount{mount("/a", "/", "ro")}, "/ belongs to the sandbox itself"},
		{"no mode", []sandbox.Mount{mount("/a", "/mnt/a", "")}, "write ro, copy or rw"},
		{"own", []sandbox.Mount{mount("/a", "/usr/local/lib", "ro")}, "belongs to the sandbox itself"},
		{"workspace", []sandbox.Mount{mount("/a", "/workspace/in", "ro")}, "belongs to the sandbox itself"},
		{"same", []sandbox.Mount{mount("/a", "/mnt/a", "ro"), mount("/b", "/mnt/a", "ro")}, "overlap"},
		{"below", []sandbox.Mount{mount("/a", "/mnt/a/b", "ro"), mount("/b", "/mnt/a", "ro")}, "overlap"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := sandbox.CheckMounts(tt.mounts); err != nil {
				got = err.Error()
			}
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("CheckMounts = %q, want %q", got, tt.want)
			}
		})
	}
}
