package audit

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// Names in the directory. A file of lines is named after its first record.
const (
	keyName    = "key"
	headName   = "head.json"
	lockName   = "audit"
	suffix     = ".jsonl"
	maxHead    = 4 << 10
	maxUnready = 64 << 20 // of lines that are not sealed yet
)

// nothing is what the first record follows.
var nothing = strings.Repeat("0", 2*sha256.Size)

// A head says where the chain begins and ends.
type head struct {
	Seq    uint64    `json:"seq"` // of the last record; 0: there is none
	Hash   string    `json:"hash"`
	File   uint64    `json:"file"`   // the file that has it
	Size   int64     `json:"size"`   // of that file
	Began  time.Time `json:"began"`  // that file
	First  uint64    `json:"first"`  // of the oldest record that is kept
	Before string    `json:"before"` // the hash that it follows
}

func fileName(first uint64) string { return fmt.Sprintf("%012d%s", first, suffix) }

// firstOf returns the first record of a file by its name.
func firstOf(name string) (seq uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	seq, err := strconv.ParseUint(digits, 10, 64)
	return seq, ok && err == nil && name == fileName(seq)
}

// seal authenticates a head.
func seal(key, raw []byte) string {
	derived, err := hkdf.Key(sha256.New, key, nil, "sallyport audit head", sha256.Size)
	if err != nil {
		panic(err) // of sizes alone, which are constants
	}
	mac := hmac.New(sha256.New, derived)
	mac.Write(raw)
	return hex.EncodeToString(mac.Sum(nil))
}

type sealed struct {
	Head json.RawMessage `json:"head"`
	Seal string          `json:"seal"`
}

// errUnsealed reports a head that this user's Sallyport did not write.
var errUnsealed = errors.New("its seal does not fit")

// readHead returns the head; fs.ErrNotExist if there is none.
func readHead(dir store.Dir, key []byte) (head, error) {
	var s sealed
	var h head
	raw, err := dir.Read(headName, maxHead)
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return h, errUnsealed
	}
	if !hmac.Equal([]byte(seal(key, s.Head)), []byte(s.Seal)) || json.Unmarshal(s.Head, &h) != nil {
		return head{}, errUnsealed
	}
	return h, nil
}

func writeHead(dir store.Dir, key []byte, h head) error {
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	out, err := json.Marshal(sealed{raw, seal(key, raw)})
	if err != nil {
		return err
	}
	return dir.Write(headName, out)
}

// lineOf makes a record's body a line of the chain, and returns its hash.
func lineOf(seq uint64, prev string, body []byte) (line []byte, hash string) {
	line = fmt.Appendf(make([]byte, 0, len(body)+200), `{"seq":%d,"prev":"%s",`, seq, prev)
	line = append(line, body[1:len(body)-1]...)
	sum := sha256.Sum256(line)
	hash = hex.EncodeToString(sum[:])
	return append(append(append(line, beforeHash...), hash...), "\"}\n"...), hash
}

const beforeHash = `,"hash":"`

// A link is the part of a line that makes the chain.
type link struct {
	seq        uint64
	prev, hash string
}

// linkOf reads a line without its end. ok reports whether its hash is right.
func linkOf(line []byte) (l link, ok bool) {
	const tail = 2*sha256.Size + len(`"}`)
	cut := len(line) - tail - len(beforeHash)
	if cut < 0 || string(line[cut:len(line)-tail]) != beforeHash || string(line[len(line)-2:]) != `"}` {
		return l, false
	}
	sum := sha256.Sum256(line[:cut])
	l.hash = string(line[len(line)-tail : len(line)-2])
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	digits, rest, comma := bytes.Cut(rest, []byte(","))
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	rest, prev := bytes.CutPrefix(rest, []byte(`"prev":"`))
	if !ok || !comma || err != nil || !prev || len(rest) < 2*sha256.Size {
		return l, false
	}
	l.seq, l.prev = seq, string(rest[:2*sha256.Size])
	return l, hex.EncodeToString(sum[:]) == l.hash
}

// chain appends to the log.
type chain struct {
	config  *Config
	cleaned bool // old files were looked for
}

// append writes records to the end of the chain: all, or none on error.
func (c *chain) append(bodies [][]byte) (err error) {
	if len(bodies) == 0 {
		return nil
	}
	dir := c.config.Dir
	unlock, err := dir.Lock(lockName)
	if err != nil {
		return err
	}
	defer unlock()
	key, err := dir.Key(keyName, true)
	if errors.Is(err, store.ErrNoKey) {
		if err = dir.Remove(keyName); err == nil {
			key, err = dir.Key(keyName, true)
		}
	}
	if err != nil {
		return err
	}
	root, err := dir.OpenRoot()
	if err != nil {
		return err
	}
	defer root.Close()

	now := time.Now()
	h, noticed, err := c.resume(root, key)
	if err != nil {
		return err
	}
	fresh := h.Size == 0 || h.Size >= c.config.RotateSize || now.Sub(h.Began) >= c.config.RotateAge
	for _, r := range noticed {
		body, err := json.Marshal(r)
		if err != nil {
			return err
		}
		bodies = append([][]byte{body}, bodies...)
		fresh = fresh || r.Type == Broken // what is there stays as it is
	}
	if fresh {
		h.File, h.Size, h.Began = h.Seq+1, 0, now.UTC()
	}
	var lines bytes.Buffer
	for _, body := range bodies {
		h.Seq++
		var line []byte
		line, h.Hash = lineOf(h.Seq, h.Hash, body)
		lines.Write(line)
	}
	size := h.Size
	h.Size += int64(lines.Len())
	f, err := root.OpenFile(fileName(h.File), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Truncate(size))
		}
	}()
	if err := f.Truncate(size); err != nil {
		return err
	}
	if _, err := f.WriteAt(lines.Bytes(), size); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	var old []string
	if fresh || !c.cleaned {
		old = c.outdated(&h, now)
	}
	if err := writeHead(dir, key, h); err != nil {
		return err
	}
	c.cleaned = true
	for _, name := range old {
		_ = dir.Remove(name) // or else the next time
	}
	return nil
}

// blocked reports whether something seems to keep lines from being appended. It looks at
// the directory and writes nothing, so that it does not notice a full disk.
func (c *chain) blocked() bool {
	root, err := c.config.Dir.OpenRoot()
	if err != nil {
		return true
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil || info.Mode().Perm()&0o200 == 0 {
		return true
	}
	f, err := root.OpenFile(headName, os.O_WRONLY, 0)
	if err != nil {
		return true
	}
	return f.Close() != nil
}

// resume returns the end of the chain, and what it has noticed there.
func (c *chain) resume(root *os.Root, key []byte) (h head, noticed []*Record, err error) {
	h, err = readHead(c.config.Dir, key)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errUnsealed):
		files, listed := c.config.Dir.List()
		if listed != nil {
			return h, nil, listed
		}
		was := err
		if h, err = c.rebuilt(files); err != nil {
			return h, nil, err
		}
		if h.Seq > 0 || errors.Is(was, errUnsealed) {
			noticed = append(noticed, &Record{Time: time.Now().UTC(), Type: Broken, Reason: "the head of the log was missing or not its own: " + was.Error()})
		}
		return h, noticed, nil
	case err != nil:
		return h, nil, err
	}
	for {
		r, err := unsealed(root, &h)
		if err != nil {
			return h, nil, err
		}
		if r != nil {
			return h, append(noticed, r), nil
		}
		// A process may have died after it began a file, too.
		info, err := root.Lstat(fileName(h.Seq + 1))
		if err != nil || h.File == h.Seq+1 {
			return h, noticed, nil
		}
		h.File, h.Size, h.Began = h.Seq+1, 0, info.ModTime().UTC()
	}
}

// unsealed moves the head behind what a process wrote into its file and did not
// live to seal. It returns a record of what was not as it should be.
func unsealed(root *os.Root, h *head) (*Record, error) {
	broken := func(why string) (*Record, error) {
		return &Record{Time: time.Now().UTC(), Type: Broken, Reason: why}, nil
	}
	f, err := root.Open(fileName(h.File))
	if errors.Is(err, fs.ErrNotExist) {
		return broken("the last file of the log was missing")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	beyond := info.Size() - h.Size
	switch {
	case beyond < 0:
		return broken(fmt.Sprintf("the log was cut: its last file was %d bytes too short", -beyond))
	case beyond > maxUnready:
		return broken("something else has written into the log")
	}
	data := make([]byte, beyond)
	if _, err := f.ReadAt(data, h.Size); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			return &Record{Time: time.Now().UTC(), Type: Repaired, Lost: len(data), Reason: "a process ended while it wrote a line, which was removed"}, nil
		}
		l, ok := linkOf(line)
		if !ok || l.seq != h.Seq+1 || l.prev != h.Hash {
			return broken("something else has written into the log")
		}
		h.Seq, h.Hash, h.Size = l.seq, l.hash, h.Size+int64(len(line))+1
		data = rest
	}
	return nil, nil
}

// rebuilt returns a head for files that have none: the chain goes on behind the
// last line that is whole.
func (c *chain) rebuilt(names []string) (head, error) {
	h := head{Hash: nothing, First: 1, Before: nothing}
	for _, name := range names {
		first, ok := firstOf(name)
		if !ok {
			continue
		}
		f, err := c.config.Dir.Open(name)
		if err != nil {
			return h, err
		}
		err = eachLine(f, -1, func(line []byte, whole bool) bool {
			if l, ok := linkOf(line); ok && whole && l.seq > h.Seq {
				if h.Seq == 0 {
					h.First, h.Before = l.seq, l.prev
				}
				h.Seq, h.Hash = l.seq, l.hash
			}
			return true
		})
		f.Close()
		if err != nil {
			return h, err
		}
		h.Seq = max(h.Seq, first-1) // no file is written twice
	}
	return h, nil
}

// outdated returns the names of files that are not kept, and moves the head's
// beginning behind them.
func (c *chain) outdated(h *head, now time.Time) (names []string) {
	type file struct {
		name  string
		first uint64
		size  int64
		last  time.Time
	}
	var files []file
	var all int64
	listed, _ := c.config.Dir.List()
	for _, name := range listed {
		first, ok := firstOf(name)
		info, err := os.Lstat(c.config.Dir.Path(name))
		if ok && err == nil {
			files = append(files, file{name, first, info.Size(), info.ModTime()})
			all += info.Size()
		}
	}
	for i := 0; i+1 < len(files) && files[i].first < h.File; i++ {
		f, next := files[i], files[i+1]
		old := c.config.Keep > 0 && now.Sub(f.last) > c.config.Keep
		much := c.config.MaxDisk > 0 && all > c.config.MaxDisk
		if f.first >= h.First {
			if !old && !much {
				break
			}
			h.First, h.Before = next.first, c.follows(next.name)
		}
		all -= f.size
		names = append(names, f.name)
	}
	return names
}

// follows returns the hash that a file's first record follows. Where that cannot
// be read, Verify has found why.
func (c *chain) follows(name string) (hash string) {
	hash = nothing
	f, err := c.config.Dir.Open(name)
	if err != nil {
		return hash
	}
	defer f.Close()
	_ = eachLine(f, -1, func(line []byte, _ bool) bool {
		if l, ok := linkOf(line); ok {
			hash = l.prev
		}
		return false
	})
	return hash
}
