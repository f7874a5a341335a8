package ledger

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"github.com/sallyport/sallyport/internal/store"
)

// What is not over cannot be a line yet. Each program holds it in a file of its
// own, which is replaced every second or two, and whose lock it holds. The file
// of a program that has died is booked once by whoever comes next: an entry that
// is in a day's file already is known by its key, as that is written first.

const (
	heldDir    = "held"
	heldSuffix = ".json"
	maxHeld    = 64 << 20
)

// key tells entries apart that were never merged with others.
type key struct {
	kind, session, servers string
	began                  int64
}

func keyOf(e *Entry) key {
	k := key{kind: e.Kind, session: e.Session, began: e.Time.UnixNano()}
	if e.Kind == Server { // a run's are not known before it has ended
		k.servers = strings.Join(e.Servers, ",")
	}
	return k
}

// A Holder holds the entries of one program that are not over.
type Holder struct {
	dir     store.Dir
	name    string
	release func()
}

// Holder returns the holder of a program, whose name must be unique.
func (l *Ledger) Holder(name string) (*Holder, error) {
	dir := l.dir.Sub(heldDir)
	release, ok, err := dir.TryLock(name)
	if err == nil && !ok {
		err = errors.New("another program holds entries under this name")
	}
	if err != nil {
		return nil, err
	}
	return &Holder{dir, name, release}, nil
}

// Hold replaces what the program holds. It returns at once: a power cut may
// lose it, the death of the program does not.
func (h *Holder) Hold(entries []Entry) error {
	if len(entries) == 0 {
		if err := h.dir.Remove(h.name + heldSuffix); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	raw, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	return h.dir.WriteUnsynced(h.name+heldSuffix, raw)
}

// HeldPath is where a program's entries are held.
func (l *Ledger) HeldPath(name string) string { return l.dir.Sub(heldDir).Path(name + heldSuffix) }

// Abandon leaves what is held to the next program, as the death of this one does.
func (h *Holder) Abandon() { h.release() }

// Close gives up what is held.
func (h *Holder) Close() error {
	err := h.Hold(nil)
	h.release()
	return err
}

// held is what all programs hold.
func (l *Ledger) held() (map[key]*Entry, error) {
	dir := l.dir.Sub(heldDir)
	names, err := dir.List()
	if err != nil {
		return nil, err
	}
	all := map[key]*Entry{}
	for _, name := range names {
		for _, e := range readHeld(dir, name) {
			all[keyOf(&e)] = &e
		}
	}
	return all, nil
}

// readHeld reads a file of held entries, as far as that can be done.
func readHeld(dir store.Dir, name string) []Entry {
	if !strings.HasSuffix(name, heldSuffix) {
		return nil
	}
	var list []Entry
	if raw, err := dir.Read(name, maxHeld); err != nil || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

// Recover books what programs held that have died, and returns it.
func (l *Ledger) Recover() (booked []Entry, err error) {
	dir := l.dir.Sub(heldDir)
	names, err := dir.List()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		owner, ok := strings.CutSuffix(name, heldSuffix)
		if !ok {
			continue
		}
		unlock, free, err := dir.TryLock(owner)
		if err != nil || !free {
			errs = append(errs, err)
			continue
		}
		entries, err := l.book(dir, name)
		unlock()
		booked, errs = append(booked, entries...), append(errs, err)
	}
	return booked, errors.Join(errs...)
}

// book moves what a dead program held into the days' files.
func (l *Ledger) book(dir store.Dir, name string) ([]Entry, error) {
	unlock, err := l.dir.Lock(lock)
	if err != nil {
		return nil, err
	}
	defer unlock()
	held := readHeld(dir, name)
	there := map[key]bool{}
	read := map[string]bool{}
	for i := range held {
		day := nameOf(held[i].Time)
		if read[day] {
			continue
		}
		read[day] = true
		if _, err := l.readDay(day, func(e *Entry) { there[keyOf(e)] = true }); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	var fresh []Entry
	for _, e := range held {
		if there[keyOf(&e)] {
			continue
		}
		if e.Kind == Run {
			e.Failed = e.Runs // its program was killed under it
		}
		fresh = append(fresh, e)
	}
	days, err := linesOf(fresh)
	if err != nil {
		return nil, err
	}
	if err := l.write(days); err != nil {
		return nil, err
	}
	return fresh, dir.Remove(name)
}
