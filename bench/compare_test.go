package main

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// blocks returns turns whose medians lie around a value, on a machine whose speed
// changes from turn to turn.
func blocks(n int, times float64, seed uint64) []sample {
	speed, noise := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(seed, 2))
	var out []sample
	for range n {
		machine := 1 + 2*speed.Float64()
		var s sample
		for range 5 {
			s = append(s, time.Duration(1e6*times*machine*(1+0.05*noise.Float64())))
		}
		out = append(out, s)
	}
	return out
}

func TestRatioOf(t *testing.T) {
	for _, times := range []float64{0.5, 1, 1.08, 1.3} {
		before, now := blocks(40, 1, 3), blocks(40, times, 4)
		got := ratioOf(before, now, usual)
		if got.Low > times || times > got.High || got.High-got.Low > 0.05*times {
			t.Errorf("%.2f times as long: got %v, want a narrow interval around it", times, got)
		}
		if wider := ratioOf(before, now, sure); wider.Low > got.Low || wider.High < got.High || wider.Median != got.Median {
			t.Errorf("with more confidence: got %v, want %v and wider", wider, got)
		}
		if again := ratioOf(before, now, usual); again != got {
			t.Errorf("got %v and then %v of the same samples", got, again)
		}
	}
	one := ratioOf([]sample{{4}}, []sample{{5}}, sure)
	if want := (ratio{1.25, 1.25, 1.25}); one != want {
		t.Errorf("one turn: got %v, want %v", one, want)
	}
	if zero := ratioOf([]sample{{0}}, []sample{{5}}, sure); math.IsInf(zero.Median, 0) {
		t.Errorf("of nothing: got %v, want a number", zero)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 2}, 2}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.of, got, c.want)
		}
	}
}

// A figure fails if it is surely slower, twice.
func TestFail(t *testing.T) {
	for _, c := range []struct {
		name         string
		first, again float64 // times as long
		fails        bool
		measured     int // turns of each executable
	}{
		{"as fast", 1, 1, false, 21},
		{"a little slower", 1.06, 1.06, false, 21},
		{"faster", 0.5, 0.5, false, 21},
		{"once slower", 1.4, 1, false, 21 + 41},
		{"twice slower", 1.4, 1.4, true, 21 + 41},
	} {
		calls, openings := [2]int{}, 0
		contest := contest{what: "a call", turns: 20, show: show, open: func(*bench) (func() (sample, error), func() error, error) {
			who, times := openings%2, 1.0
			if who == 1 {
				times = []float64{c.first, c.again}[openings/2]
			}
			all := blocks(100, times, uint64(openings+5))
			openings++
			return func() (sample, error) {
				calls[who]++
				return all[calls[who]%50], nil
			}, nil, nil
		}}
		_, err := contest.compare(pair{}, true)
		if (err != nil) != c.fails {
			t.Errorf("%s: got %v, want failure %t", c.name, err, c.fails)
		}
		if want := [2]int{c.measured, c.measured}; calls != want {
			t.Errorf("%s: took %v turns, want %v", c.name, calls, want)
		}
		if c.fails && !strings.Contains(err.Error(), "a call: more than 10 % worse, twice: 1.4") {
			t.Errorf("%s: got the message %q", c.name, err)
		}
	}
}

// What cannot be measured is named, and what was opened is closed.
func TestContestFails(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name          string
		opens, turns  error
		want          string
		closed, turnd int
	}{
		{"open", broken, nil, "now: broken", 1, 0},
		{"turn", nil, broken, "before: broken", 2, 1},
	} {
		opened, closed, turned := 0, 0, 0
		contest := contest{what: "x", turns: 3, show: show, open: func(*bench) (func() (sample, error), func() error, error) {
			opened++
			end := func() error { closed++; return nil }
			if opened == 2 && c.opens != nil {
				return nil, nil, c.opens
			}
			return func() (sample, error) { turned++; return sample{1}, c.turns }, end, nil
		}}
		got, err := contest.compare(pair{}, false)
		if err == nil || !strings.Contains(err.Error(), c.want) || got.Error == "" {
			t.Errorf("%s: got %+v, %v, want %q", c.name, got, err, c.want)
		}
		if closed != c.closed || turned != c.turnd {
			t.Errorf("%s: closed %d and took %d turns, want %d and %d", c.name, closed, turned, c.closed, c.turnd)
		}
	}
}

func TestWriteComparison(t *testing.T) {
	var out bytes.Buffer
	err := writeComparison(&out, []compared{
		{What: "a call", Before: [2]string{"1 ms", "2 ms"}, Now: [2]string{"3 ms", "4 ms"}, Ratio: ratio{3, 2.5, 3.5}, Turns: 40},
		{What: "a start", Error: "it is not there"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a call  | 1 ms ", "| 3.000 [2.500, 3.500] | 40 ", "| a start |", "failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out.String(), want)
		}
	}
}

func TestCompareRefuses(t *testing.T) {
	var out bytes.Buffer
	err := runCompare(options{n: 1}, "no-such-commit", "", false, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "no-such-commit") {
		t.Errorf("got %v, want the name of the commit", err)
	}
}
