// Command bench measures every figure that Sallyport promises and prints them
// as one table, each beside what the machine itself does in the same run.
//
//	CGO_ENABLED=0 go build -o bin/sallyport ./cmd/sallyport
//	go run ./bench                      as the user that runs it
//	go run ./bench -as-user nobody      as root, measuring as another user
//	go run ./bench -wasm                the engine wasm next to gVisor
//	go run ./bench -where               where a warm call's time goes
//	go run ./bench -compare REV         a commit and the working tree in turn
//	go run ./bench -json
//
// It measures; it is no test. It exits non-zero only when something could not
// be measured.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// A bench is one run: what is measured, and how children are started.
type bench struct {
	n           int
	sallyport   string // a copy of our own: its processes are told by it
	echoserver  string
	self        string // a copy of this program
	python      string
	dir         string // owned by the measured user
	launch      launch
	progress    io.Writer
	echoServers int                                         // that ran while all clients were connected
	configs     struct{ none, one, two, five, many string } // files that define so many servers
}

// few and some are the repetitions of what takes long.
func (b *bench) few() int  { return max(b.n/200, 3) }
func (b *bench) some() int { return max(b.n/100, 5) }

func main() {
	var o options
	flag.IntVar(&o.n, "n", 2000, "repetitions of a fast measurement; slow ones take a hundredth of it")
	flag.StringVar(&o.bin, "bin", "bin/sallyport", "the executable to measure")
	flag.StringVar(&o.asUser, "as-user", "", "measure as this user (needs root)")
	flag.BoolVar(&o.hub, "hub", false, "measure the clients that share a hub, and nothing else")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	engines := flag.String("engines", "", "measure the engines that this file lists, as bench/engines writes it, and nothing else")
	wasm := flag.Bool("wasm", false, "measure the engine wasm next to gVisor, and nothing else")
	python := flag.String("python", "", "of -wasm, the native Python of the microbenchmarks (one of the same version says most)")
	memory := flag.Bool("memory", false, "fill the memory of sessions in many ways, and nothing else")
	only := flag.String("only", "", "of -memory, -compare and -where, what has this text in its name")
	rev := flag.String("compare", "", "measure the commit `REV` and the working tree in turn, and nothing else; -only chooses figures")
	fail := flag.Bool("fail", false, "of -compare, exit with 1 if a figure is surely more than 10 % worse")
	where := flag.Bool("where", false, "print where the time of a warm call goes, and nothing else")
	echo := flag.Bool("pipe-echo", false, "answer lines; the other end of the pipe measurement")
	flag.Parse()
	var err error
	switch {
	case *echo:
		err = echoLines()
	case *engines != "":
		err = runEngines(o, *engines, os.Stdout, os.Stderr)
	case *wasm:
		err = runWasm(o, *python, os.Stdout, os.Stderr)
	case *where:
		err = runWhere(o, *only, os.Stdout, os.Stderr)
	case *rev != "":
		err = runCompare(o, *rev, *only, *fail, os.Stdout, os.Stderr)
	case *memory:
		err = runFillings(o, *only, os.Stdout, os.Stderr)
	default:
		err = run(o, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	n           int
	bin, asUser string
	json, hub   bool
}

func run(o options, stdout, stderr io.Writer) (err error) {
	b, who, err := prepare(o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()

	rep := report{Machine: describeMachine(), User: who}
	if o.hub {
		rep.Rows = b.hubRows()
		return rep.writeTable(stdout)
	}
	b.say("the machine itself")
	f, err := b.measureFloors()
	if err != nil {
		return err
	}
	b.say("a live session")
	rep.Rows = append(rep.Rows, b.liveSession(f)...)
	b.say("new sessions")
	rep.Rows = append(rep.Rows, b.newSession(f))
	b.say("new processes")
	rep.Rows = append(rep.Rows, b.fromProcessStart(f))
	b.say("sessions that sleep")
	rep.Rows = append(rep.Rows, b.sleeping(f)...)
	b.say("memory")
	rep.Rows = append(rep.Rows, b.idleMemory())
	b.say("clients that share a hub")
	rep.Rows = append(rep.Rows, b.hubRows()...)
	b.say("context")
	rep.Rows = append(rep.Rows, b.contextCost(), b.executableSize())

	return rep.print(o, stdout)
}

func (b *bench) say(phase string) {
	fmt.Fprintln(b.progress, "bench: measuring", phase)
}

func prepare(o options, progress io.Writer) (*bench, string, error) {
	me, err := user.Current()
	if err != nil {
		return nil, "", err
	}
	who := me
	if o.asUser != "" {
		if who, err = user.Lookup(o.asUser); err != nil {
			return nil, "", err
		}
	}
	uid, err1 := strconv.Atoi(who.Uid)
	gid, err2 := strconv.Atoi(who.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return nil, "", err
	}

	dir, err := os.MkdirTemp("", "sallyport-bench-")
	if err != nil {
		return nil, "", err
	}
	b := &bench{n: max(o.n, 1), dir: dir, progress: progress, python: "/usr/bin/python3"}
	if _, err := os.Stat(b.python); err != nil {
		if b.python, err = exec.LookPath("python3"); err != nil {
			return nil, "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	b.sallyport = filepath.Join(dir, "sallyport")
	b.echoserver = filepath.Join(dir, "echoserver")
	b.self = filepath.Join(dir, "bench")
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(copyFile(self, b.self), copyFile(o.bin, b.sallyport), buildEchoserver(b.echoserver))
	}
	home := filepath.Join(dir, "home")
	runtimeDir := filepath.Join(dir, "run")
	err = errors.Join(err,
		os.Mkdir(home, 0o700), os.Mkdir(runtimeDir, 0o700),
		os.Chown(home, uid, gid), os.Chown(runtimeDir, uid, gid), os.Chmod(dir, 0o755))
	if err == nil {
		err = b.writeConfigs()
	}
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	b.launch = launch{dir: home, env: []string{
		"HOME=" + home, "XDG_RUNTIME_DIR=" + runtimeDir, "USER=" + who.Username, "LOGNAME=" + who.Username,
		"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "SALLYPORT_HUB_ENABLED=false",
	}}
	if who.Uid != me.Uid {
		b.launch.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return b, who.Username, nil
}

// writeConfigs defines servers named bench0 and on. The many are as many, with
// as many tools, as a person was seen to have.
func (b *bench) writeConfigs() error {
	for _, c := range []struct {
		file           *string
		servers, tools int
	}{{&b.configs.none, 0, 0}, {&b.configs.one, 1, 3}, {&b.configs.two, 2, 3}, {&b.configs.five, 5, 3}, {&b.configs.many, 17, 27}} {
		servers := map[string]any{}
		for i := range c.servers {
			servers[fmt.Sprintf("bench%d", i)] = map[string]any{
				"command": b.echoserver,
				"args":    []string{"-tools", strconv.Itoa(c.tools)},
			}
		}
		raw, err := json.Marshal(map[string]any{"mcpServers": servers})
		if err != nil {
			return err
		}
		*c.file = filepath.Join(b.dir, fmt.Sprintf("servers-%d.json", c.servers))
		if err := os.WriteFile(*c.file, raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func buildEchoserver(to string) error {
	cmd := exec.Command("go", "build", "-o", to, "github.com/sallyport/sallyport/bench/echoserver")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the echo server: %w\n%s", err, out)
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
