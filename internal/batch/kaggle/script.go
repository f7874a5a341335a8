package kaggle

import (
	"bytes"
	"compress/zlib"
	"crypto/rand"
	"crypto/sha256"
	_ "embed" // the bootstrap
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
)

//go:embed bootstrap/bootstrap.py
var bootstrapSource string

//go:embed bootstrap/program.py
var programSource string

//go:embed bootstrap/gauge.py
var gaugeSource string

//go:embed bootstrap/results.py
var resultsSource string

//go:embed bootstrap/carbon.py
var carbonSource string

// maxScript is the largest source of a script that Kaggle accepts.
const maxScript = 1 << 20

// codecarbonVersion is the version that runs alongside the code, if requested.
const codecarbonVersion = "3.3.2"

// payload is the input of the bootstrap.
type payload struct {
	Run         string            `json:"run"`
	Code        string            `json:"code"`
	Filename    string            `json:"filename"`
	Script      bool              `json:"script"`
	Args        []string          `json:"args"`
	Env         map[string]string `json:"env"`
	Files       []payloadFile     `json:"files"`
	Datasets    []string          `json:"datasets"` // directories that must exist
	Sources     []string          `json:"sources"`  // as requested
	Internet    bool              `json:"internet"`
	Accelerator string            `json:"accelerator"`
	Timeout     float64           `json:"timeout"`  // seconds
	NotAfter    int64             `json:"notAfter"` // Unix time after which the code must not begin
	OutputBytes int64             `json:"outputBytes"`
	Seed        string            `json:"seed"`
	CodeCarbon  *companion        `json:"codecarbon,omitempty"`
	Modules     map[string]string `json:"modules"`
}

type payloadFile struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
	Mode uint32 `json:"mode"`
}

type companion struct {
	Version string `json:"version"`
	Country string `json:"country"`
	Region  string `json:"region,omitempty"`
}

// plan is a run before it is pushed.
type plan struct {
	job      *batch.Job
	sources  sources
	shape    string
	internet bool
	timeout  time.Duration
	notAfter time.Time
	output   int64
	carbon   *companion
}

// script is the text of the run's script. The code is data in it, so that no
// quoting can break it, or break out of it.
func (p *plan) script(modules map[string]string) (text string, codeHash string, err error) {
	seed := make([]byte, 4)
	_, _ = rand.Read(seed) // never fails
	name := p.job.Filename
	if name == "" {
		name = "main.py"
	}
	in := payload{
		Run: p.job.ID, Code: p.job.Code, Filename: name, Script: p.job.Script,
		Args: append([]string{}, p.job.Args...), Env: map[string]string{}, Files: []payloadFile{},
		Datasets: append([]string{}, p.sources.names...), Sources: append([]string{}, p.sources.asked...),
		Internet: p.internet, Accelerator: p.shape,
		Timeout: p.timeout.Seconds(), NotAfter: p.notAfter.Unix(), OutputBytes: p.output,
		Seed: strconv.FormatUint(uint64(binary.BigEndian.Uint32(seed)), 10), CodeCarbon: p.carbon,
		Modules: modules,
	}
	maps.Copy(in.Env, p.job.Env)
	for _, f := range p.job.Files {
		mode := f.Mode & 0o777
		if mode == 0 {
			mode = 0o644
		}
		in.Files = append(in.Files, payloadFile{f.Path, append([]byte{}, f.Data...), mode})
	}
	data, err := json.Marshal(in)
	if err != nil {
		return "", "", err
	}
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	_, _ = w.Write(data) // into memory
	_ = w.Close()

	var b strings.Builder
	fmt.Fprintf(&b, "# Run %s of Sallyport. The program, its files and what they run with are in PAYLOAD.\n", p.job.ID)
	b.WriteString("import base64, json, zlib\n\nPAYLOAD = json.loads(zlib.decompress(base64.b64decode(\"\"\"\n")
	encoded := base64.StdEncoding.EncodeToString(packed.Bytes())
	for len(encoded) > 0 {
		n := min(len(encoded), 100)
		b.WriteString(encoded[:n])
		b.WriteByte('\n')
		encoded = encoded[n:]
	}
	b.WriteString("\"\"\")))\n\n")
	b.WriteString(bootstrapSource)
	if b.Len() > maxScript {
		return "", "", fmt.Errorf("code and files make a script of %d KB, but Kaggle accepts at most %d KB: put large files into a Kaggle dataset and name it", b.Len()>>10, maxScript>>10)
	}
	return b.String(), hashOf(p.job.Code), nil
}

func hashOf(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}
