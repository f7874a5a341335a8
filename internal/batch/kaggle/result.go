package kaggle

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/batch"
)

// The files that the bootstrap adds to the output.
const (
	resultFile   = "sallyport-result.json"
	manifestFile = "sallyport-manifest.json"
	archiveFile  = "sallyport-files.tar.gz"
)

func isOurs(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first == resultFile || first == manifestFile || first == archiveFile
}

const (
	resultVersion = 1
	maxNotes      = 20
	maxFiles      = 20000
	maxPath       = 1024
	maxGPUs       = 64
	maxManifest   = 32 << 20
)

// maxResult bounds a result file: two outputs in base64, and the files' list.
func maxResult(output int64) int64 { return 3*output + 16<<20 }

// wireResult is the result file. All of it is hostile.
type wireResult struct {
	Version    int         `json:"version"`
	Run        string      `json:"run"`
	CodeSHA256 string      `json:"codeSha256"`
	End        string      `json:"end"`
	Error      string      `json:"error"`
	ExitCode   int         `json:"exitCode"`
	Stdout     wireStream  `json:"stdout"`
	Stderr     wireStream  `json:"stderr"`
	Began      float64     `json:"began"`
	Seconds    float64     `json:"seconds"`
	CPUSeconds float64     `json:"cpuSeconds"`
	MeanBytes  float64     `json:"meanBytes"`
	PeakBytes  float64     `json:"peakBytes"`
	CPUModel   string      `json:"cpuModel"`
	CPUs       int         `json:"cpus"`
	GPUs       []string    `json:"gpus"`
	GPUJoules  float64     `json:"gpuJoules"`
	GPUMethod  string      `json:"gpuMethod"`
	CodeCarbon *wireCarbon `json:"codecarbon"`
	Notes      []string    `json:"notes"`
	Files      []wireFile  `json:"files"`
	FilesLeft  bool        `json:"filesLeft"` // there are more than Files has
}

type wireStream struct {
	Data    string `json:"data"`
	Omitted int64  `json:"omitted"`
}

type wireFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Input  bool   `json:"input"`
	Packed bool   `json:"packed"`
}

type wireCarbon struct {
	Version string  `json:"version"`
	Seconds float64 `json:"seconds"`
	KWh     float64 `json:"kWh"`
	CPUKWh  float64 `json:"cpuKWh"`
	RAMKWh  float64 `json:"ramKWh"`
	GPUKWh  float64 `json:"gpuKWh"`
	Kg      float64 `json:"kgCO2e"`
	Country string  `json:"country"`
}

// wantedFile is a file that Fetch downloads. Its path was checked.
type wantedFile struct {
	path   string
	size   int64 // negative: not known
	sha256 string
	packed bool
}

// decodeResult reads the result file of the run with that ID and code. What it
// returns is well-formed, but not necessarily true.
func decodeResult(from io.Reader, id, codeHash string, output int64) (*wireResult, [2][]byte, error) {
	var streams [2][]byte
	d := json.NewDecoder(io.LimitReader(from, maxResult(output)))
	var r wireResult
	if err := d.Decode(&r); err != nil {
		return nil, streams, errors.New("it cannot be read as JSON")
	}
	switch {
	case r.Version != resultVersion:
		return nil, streams, fmt.Errorf("its version is %d, want %d", r.Version, resultVersion)
	case r.Run != id || codeHash != "" && r.CodeSHA256 != codeHash:
		return nil, streams, errors.New("it belongs to another run")
	case !slices.Contains([]string{"exited", "timed-out", "expired", "failed"}, r.End):
		return nil, streams, errors.New("it does not say how the run ended")
	case r.End == "exited" && (r.ExitCode < 0 || r.ExitCode > 255):
		return nil, streams, errors.New("its exit status is out of range")
	case len(r.Files) > maxFiles:
		return nil, streams, errors.New("it lists too many files")
	}
	for i, s := range []*wireStream{&r.Stdout, &r.Stderr} {
		data, err := base64.StdEncoding.DecodeString(s.Data)
		if err != nil || s.Omitted < 0 || s.Omitted > 1<<50 {
			return nil, streams, errors.New("its output cannot be read")
		}
		const slack = 100 // the line that says how much was left out
		if over := int64(len(data)) - output - slack; over > 0 {
			data = data[:output]
			s.Omitted += over + slack
		}
		s.Data, streams[i] = "", data
	}
	for _, f := range []*float64{&r.Began, &r.Seconds, &r.CPUSeconds, &r.MeanBytes, &r.PeakBytes, &r.GPUJoules} {
		*f = sane(*f)
	}
	if c := r.CodeCarbon; c != nil {
		for _, f := range []*float64{&c.Seconds, &c.KWh, &c.CPUKWh, &c.RAMKWh, &c.GPUKWh, &c.Kg} {
			*f = sane(*f)
		}
		c.Version, c.Country = word(c.Version), word(c.Country)
	}
	r.Error, r.CPUModel, r.GPUMethod = clean(r.Error, nil), clean(r.CPUModel, nil), word(r.GPUMethod)
	r.Notes, r.GPUs = r.Notes[:min(len(r.Notes), maxNotes)], r.GPUs[:min(len(r.GPUs), maxGPUs)]
	for _, list := range [][]string{r.Notes, r.GPUs} {
		for i := range list {
			list[i] = clean(list[i], nil)
		}
	}
	r.CPUs = min(max(r.CPUs, 0), 4096)
	return &r, streams, nil
}

// sane returns a measured value, or zero if it is impossible.
func sane(f float64) float64 {
	if !(f >= 0 && f < 1e15) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// word shortens a string to at most 40 bytes and cleans it.
func word(s string) string {
	s = clean(s, nil)
	return strings.ToValidUTF8(s[:min(len(s), 40)], "")
}

// batchResult converts a result file to what the caller sees.
func (r *wireResult) batchResult(streams [2][]byte, h *handle) batch.Result {
	out := batch.Result{
		Stdout: streams[0], Stderr: streams[1], ExitCode: -1, Error: r.Error,
		Ran: seconds(r.Seconds), Notes: append(slices.Clone(h.Notes), r.Notes...),
	}
	out.Truncated.Stdout, out.Truncated.Stderr = r.Stdout.Omitted, r.Stderr.Omitted
	switch r.End {
	case "exited":
		out.End, out.ExitCode, out.Error = batch.Exited, r.ExitCode, ""
	case "timed-out":
		out.End = batch.TimedOut
	case "expired":
		out.End = batch.Expired
	default:
		out.End = batch.Failed
	}
	if out.End != batch.Exited && out.Error == "" {
		out.Error = "the run ended as " + r.End
	}
	if began := time.Unix(0, int64(r.Began*1e9)); r.Began > 0 && began.After(h.Pushed) && began.Before(h.Until) {
		out.Queued = began.Sub(h.Pushed)
	}
	if r.Seconds > 0 {
		out.Usage = &batch.Usage{
			CPU: seconds(r.CPUSeconds), MeanBytes: int64(r.MeanBytes), PeakBytes: int64(r.PeakBytes), CPUModel: r.CPUModel, GPUs: len(r.GPUs), GPUJoules: r.GPUJoules,
		}
		if len(r.GPUs) > 0 {
			out.Usage.GPUModel = r.GPUs[0]
		} else if isTPU(h.Accelerator) {
			out.Usage.GPUModel, out.Usage.GPUs = h.Accelerator, 1
		}
	}
	where := "ran on Kaggle"
	if r.CPUs > 0 {
		where += fmt.Sprintf(", on %d cores of %s", r.CPUs, r.CPUModel)
	}
	if len(r.GPUs) > 0 {
		where += fmt.Sprintf(", with %d × %s", len(r.GPUs), r.GPUs[0])
	} else if isGPU(h.Accelerator) {
		where += ", without a GPU, although one was requested"
	}
	out.Notes = append(out.Notes, where)
	if r.GPUJoules > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("GPU energy %.1f J, by %s", r.GPUJoules, r.GPUMethod))
	}
	if c := r.CodeCarbon; c != nil {
		out.Notes = append(out.Notes, fmt.Sprintf("codecarbon %s alongside the code, for the whole machine: %.4g Wh (CPU %.4g, memory %.4g, GPU %.4g) and %.4g g CO2e (%s) in %.0f s",
			c.Version, c.KWh*1000, c.CPUKWh*1000, c.RAMKWh*1000, c.GPUKWh*1000, c.Kg*1000, c.Country, c.Seconds))
	}
	return out
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s, 1e8) * float64(time.Second))
}

// choose selects the listed files to download: in order, as long as they fit,
// without unchanged inputs and invalid paths.
func choose(files []wireFile, budget int64) (wanted []wantedFile, left int, leftBytes int64) {
	taken := map[string]bool{} // paths, true for files
	for _, f := range files {
		if f.Input {
			continue
		}
		if !goodPath(f.Path, taken) || f.Size < 0 {
			left++
			continue
		}
		if f.Size > budget {
			left++
			leftBytes = min(leftBytes, math.MaxInt64-f.Size) + f.Size
			continue
		}
		budget -= f.Size
		claim(f.Path, taken)
		wanted = append(wanted, wantedFile{f.Path, f.Size, f.SHA256, f.Packed})
	}
	return wanted, left, leftBytes
}

// goodPath reports whether a file may be written at path in addition to those
// in taken.
func goodPath(path string, taken map[string]bool) bool {
	if path == "" || len(path) > maxPath || !utf8.ValidString(path) || strings.ContainsAny(path, "\x00\\") || isOurs(path) ||
		!filepath.IsLocal(filepath.FromSlash(path)) || filepath.ToSlash(filepath.Clean(path)) != path || path == "." {
		return false
	}
	if _, there := taken[path]; there {
		return false
	}
	for dir := parent(path); dir != "."; dir = parent(dir) {
		if taken[dir] {
			return false
		}
	}
	return true
}

func claim(path string, taken map[string]bool) {
	taken[path] = true
	for dir := parent(path); dir != "."; dir = parent(dir) {
		taken[dir] = false
	}
}

func parent(path string) string { return filepath.ToSlash(filepath.Dir(path)) }
