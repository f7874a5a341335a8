package session

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/wire"
)

// names is a list in short.
func names(list []Info) string {
	var out []string
	for _, i := range list {
		out = append(out, fmt.Sprintf("%s %s %d", i.Name, i.Status, i.Executions))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func offline(dir string) *OfflineSessions {
	return NewOfflineSessions(Options{Logger: discard, Snapshots: snapshot.At(dir + "/snapshots"), Records: store.At(dir + "/sessions"), Logs: dir + "/logs"}, "")
}

func offlineOf(t *testing.T, f *OfflineSessions) []Info {
	t.Helper()
	list, err := f.List()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, logged(1<<20))
		set := open(e)
		f := offline(dir)
		if got := names(set.List()); got != "default unused 0" {
			t.Error(got)
		}
		if list := set.List(); !list[0].Unnamed || list[0].Process == 0 || list[0].Created.IsZero() {
			t.Errorf("%+v", list[0])
		}
		exec(t, get(t, set, "Work"), "say x")
		exec(t, get(t, set, "Work"), "say x")
		exec(t, get(t, set, DefaultName), "say x")
		get(t, set, "idle")
		busy := begin(t, set, "busy", "sleep 10s")
		synctest.Wait()
		waits := begin(t, set, "busy", "say x")
		synctest.Wait()
		if got := names(set.List()); got != "Work running 2, busy running 0, default running 1" {
			t.Error(got)
		}
		for _, i := range set.List() {
			if waiting := map[bool]int{true: 2}[i.Name == "busy"]; i.Waiting != waiting || i.Log == "" || i.Used.Before(i.Created) {
				t.Errorf("%+v", i)
			}
		}
		<-busy
		<-waits
		if got := names(offlineOf(t, f)); got != "Work running 0, busy running 0" {
			t.Error(got)
		}
		for _, name := range []string{"Work", DefaultName} {
			if err := set.Suspend(t.Context(), name); err != nil {
				t.Error(err)
			}
		}
		if got := names(set.List()); got != "busy running 2, default suspended 1" {
			t.Error(got)
		}
		if got := names(offlineOf(t, f)); got != "Work suspended 2, busy running 0" {
			t.Error(got)
		}
		list := set.List()
		if i := list[slices.IndexFunc(list, func(i Info) bool { return i.Unnamed })]; i.Disk == 0 {
			t.Errorf("%+v", i)
		}
		disk := offlineOf(t, f)
		if i := disk[slices.IndexFunc(disk, func(i Info) bool { return i.Name == "Work" })]; i.Disk == 0 || i.Process != 0 || i.Log == "" {
			t.Errorf("%+v", i)
		}
		if total, err := f.Total(); err != nil || total <= 0 {
			t.Error(total, err)
		}
		// It wakes with its count, here or elsewhere.
		if err := set.Resume(t.Context(), "Work"); err != nil {
			t.Error(err)
		}
		if err := set.Resume(t.Context(), DefaultName); err != nil {
			t.Error(err)
		}
		if got := names(set.List()); got != "Work running 2, busy running 2, default running 1" {
			t.Error(got)
		}
		set.Close()
		if got := names(offlineOf(t, f)); got != "Work suspended 2, busy suspended 2" {
			t.Error(got)
		}
		set = open(e)
		exec(t, get(t, set, "Work"), "say x")
		if got := names(set.List()); got != "Work running 3, default unused 0" {
			t.Error(got)
		}
		if err := set.Reset(t.Context(), "Work"); err != nil {
			t.Error(err)
		}
		if got := names(set.List()) + "; " + names(offlineOf(t, f)); got != "default unused 0; Work unused 0, busy suspended 2" {
			t.Error(got)
		}
		exec(t, get(t, set, "Work"), "vanish")
		list = set.List()
		if got := names(list); got != "Work gone 1, default unused 0" || list[0].Lost == "" {
			t.Errorf("%s %+v", got, list)
		}
		set.Close()
		if got := names(offlineOf(t, f)); got != "Work gone 0, busy suspended 2" {
			t.Error(got)
		}
	})
}

// A process that died without a word is found out.
func TestShelfAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, nil)
		dead := open(e)
		exec(t, get(t, dead, "work"), "say x")
		get(t, dead, "work").checkpoint.Release()
		if list := offlineOf(t, offline(dir)); len(list) != 1 || list[0].Status != hibernate.Gone || list[0].Process != 0 || !strings.Contains(list[0].Lost, "without saving") {
			t.Errorf("%+v", list)
		}
		if err := offline(dir).Reset("work", true); err != nil {
			t.Error(err)
		}
		if list := offlineOf(t, offline(dir)); len(list) != 0 {
			t.Errorf("%+v", list)
		}
		get(t, dead, "work").checkpoint = nil
		dead.Close()
	})
}

func TestShelfReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, logged(1<<20))
		set := open(e)
		f := offline(dir)
		for _, all := range []bool{false, true} {
			exec(t, get(t, set, "work"), "set x 1")
			if err := f.Reset("work", all); !errors.Is(err, hibernate.ErrElsewhere) {
				t.Errorf("running: %v", err)
			}
			if err := set.Suspend(t.Context(), "work"); err != nil {
				t.Fatal(err)
			}
			if err := f.Reset("work", all); err != nil {
				t.Fatal(err)
			}
			if exists(dir+"/snapshots/session-work") || exists(dir+"/sessions/work.json") {
				t.Error("something is left")
			}
			if exists(dir+"/logs/named/work") == all {
				t.Errorf("with all %v: the log", all)
			}
			// What has a log alone is listed as unused, and can be removed.
			left := offlineOf(t, f)
			if all != (len(left) == 0) || !all && (left[0].Status != hibernate.Unused || left[0].Log == "") {
				t.Errorf("with all %v: %+v", all, left)
			}
			if out := exec(t, get(t, set, "work"), "get x"); out.Stdout.Head != "" || out.Lost != "" {
				t.Errorf("%+v", out)
			}
			if err := set.Reset(t.Context(), "work"); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Reset("nobody", true); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		set.Close()
	})
}

func TestWakeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, nil)
		set, other := open(e), open(e)
		if err := set.Resume(t.Context(), "nobody"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if err := set.Resume(t.Context(), DefaultName); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if err := set.Suspend(t.Context(), "nobody"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if err := set.Reset(t.Context(), "nobody"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		exec(t, get(t, other, "work"), "set x 1")
		if err := set.Resume(t.Context(), "work"); !errors.Is(err, hibernate.ErrElsewhere) {
			t.Error(err)
		}
		if err := other.Suspend(t.Context(), "work"); err != nil {
			t.Error(err)
		}
		e.binding = "another"
		if err := set.Resume(t.Context(), "work"); err == nil || !strings.Contains(err.Error(), "could not be resumed") {
			t.Error(err)
		}
		if err := set.Resume(t.Context(), "work"); err == nil || !strings.Contains(err.Error(), "nothing left to resume") {
			t.Error(err)
		}
		if out := exec(t, get(t, set, "work"), "get x"); !strings.Contains(out.Lost, "could not be resumed") {
			t.Errorf("%+v", out)
		}
		set.Close()
		other.Close()
	})
}

// A woken session does not fall asleep before it could be used.
func TestResumedKeepsRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, nil)
		set := open(e)
		defer set.Close()
		exec(t, get(t, set, "work"), "set x 1")
		time.Sleep(2 * time.Minute)
		if err := set.Resume(t.Context(), "work"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if got := names(set.List()); got != "default unused 0, work running 1" {
			t.Error(got)
		}
		if out := exec(t, get(t, set, "work"), "get x"); out.Stdout.Head != "1" {
			t.Errorf("%+v", out)
		}
	})
}

func TestWhatRunsIsTold(t *testing.T) {
	e := &scripted{metered: true, guest: each(func(g *guestEnd, f frame) bool {
		g.output(wire.KindNonce, f.Nonce)
		g.control(`{"type":"done","id":%d,"status":"ok","exitCode":0,"background":{"threads":2},"running":["thread a","thread b"]}`, f.ID)
		return true
	})}
	set := newTestSet(setup{Template: Template{Engine: e}})
	defer set.Close()
	exec(t, get(t, set, "work"), "say x")
	list := set.List()
	i := list[slices.IndexFunc(list, func(i Info) bool { return i.Name == "work" })]
	if i.Background.Threads != 2 || !slices.Equal(i.Running, []string{"thread a", "thread b"}) || i.Memory == nil || *i.Memory != 1<<20 || i.CPU == nil {
		t.Errorf("%+v", i)
	}
}

// Everything at once: nothing waits for ever, and what is left is a session that
// works.
func TestManyHands(t *testing.T) {
	e := newSaving()
	open, dir := sets(t, func(c *setup) { logged(1 << 20)(c); c.MaxRunning = 2 })
	set := open(e)
	defer set.Close()
	f := offline(dir)
	var all sync.WaitGroup
	for hand := range 4 {
		all.Go(func() {
			for i := range 40 {
				name := []string{"a", "b", DefaultName}[(hand+i)%3]
				s, err := set.Get(name)
				if err != nil {
					t.Error(err)
					return
				}
				switch (hand*7 + i) % 8 {
				case 0:
					_ = set.Suspend(t.Context(), name) // it may be suspended already
				case 1:
					_ = set.Resume(t.Context(), name) // or have nothing to resume
				case 2:
					_ = set.Export(t.Context(), name, io.Discard) // or to export
				case 3:
					if err := set.Reset(t.Context(), name); err != nil {
						t.Error(err)
					}
				case 4:
					set.List()
					if _, err := f.List(); err != nil {
						t.Error(err)
					}
				default:
					out, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: "set x 1", Timeout: time.Minute}})
					if err != nil && !strings.Contains(err.Error(), "sessions.maxRunning") || err == nil && (out.End != Finished || out.Lost != "") {
						t.Errorf("%+v %v", out, err)
					}
				}
			}
		})
	}
	all.Wait()
	exec(t, get(t, set, "a"), "set x 2")
	if out := exec(t, get(t, set, "a"), "get x"); out.Stdout.Head != "2" {
		t.Errorf("%+v", out)
	}
}
