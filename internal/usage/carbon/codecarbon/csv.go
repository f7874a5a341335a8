package codecarbon

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Columns are those of emissions.csv, in CodeCarbon's order.
func Columns() []string {
	return []string{
		"timestamp", "project_name", "run_id", "experiment_id", "duration", "emissions", "emissions_rate",
		"cpu_power", "gpu_power", "ram_power", "cpu_energy", "gpu_energy", "ram_energy", "energy_consumed", "water_consumed",
		"country_name", "country_iso_code", "region", "cloud_provider", "cloud_region", "os", "python_version", "codecarbon_version",
		"cpu_count", "cpu_model", "gpu_count", "gpu_model", "longitude", "latitude", "ram_total_size", "tracking_mode",
		"cpu_utilization_percent", "gpu_utilization_percent", "ram_utilization_percent", "ram_used_gb", "on_cloud", "pue", "wue",
	}
}

// Row is one line of emissions.csv: what it says, and on which machine. Negative
// numbers and empty strings are unknown, and empty in the file.
type Row struct {
	Time                 time.Time // when it ended
	Project, RunID       string
	ExperimentID         string
	Seconds              float64
	Kilograms            float64 // of CO2e
	CPU, GPU, RAM        float64 // kWh
	Partial              bool    // some energy of it is not known: neither is the sum
	Country, CountryCode string
	Region               string
	CloudProvider        string
	CloudRegion          string
	OS, Python           string
	Version              string // of the program that wrote it
	CPUs                 int
	CPUModel             string
	GPUs                 int
	GPUModel             string
	RAMTotal             float64 // GB
	CPUPercent           float64
	RAMPercent           float64
	RAMUsed              float64 // GB
	PUE                  float64
}

const joulesPerKWh = 3.6e6

func (r *Row) fields() map[string]string {
	number := func(f float64) string {
		if f < 0 || math.IsNaN(f) || math.IsInf(f, 0) {
			return ""
		}
		return strconv.FormatFloat(f, 'g', 12, 64)
	}
	watts := func(kwh float64) string {
		if r.Seconds <= 0 || kwh < 0 {
			return ""
		}
		return number(kwh * joulesPerKWh / r.Seconds)
	}
	rate := ""
	if r.Seconds > 0 && r.Kilograms >= 0 {
		rate = number(r.Kilograms / r.Seconds)
	}
	energy := ""
	if !r.Partial {
		energy = number(max(0, r.CPU) + max(0, r.GPU) + max(0, r.RAM))
	}
	cloud := "N"
	if r.CloudProvider != "" {
		cloud = "Y"
	}
	count := func(n int) string {
		if n < 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	return map[string]string{
		"timestamp": r.Time.Local().Format("2006-01-02T15:04:05"), "project_name": r.Project, "run_id": r.RunID, "experiment_id": r.ExperimentID,
		"duration": number(r.Seconds), "emissions": number(r.Kilograms), "emissions_rate": rate,
		"cpu_power": watts(r.CPU), "gpu_power": watts(r.GPU), "ram_power": watts(r.RAM),
		"cpu_energy": number(r.CPU), "gpu_energy": number(r.GPU), "ram_energy": number(r.RAM),
		"energy_consumed": energy, "water_consumed": "0.0",
		"country_name": r.Country, "country_iso_code": r.CountryCode, "region": r.Region,
		"cloud_provider": r.CloudProvider, "cloud_region": r.CloudRegion, "os": r.OS, "python_version": r.Python, "codecarbon_version": r.Version,
		"cpu_count": count(r.CPUs), "cpu_model": r.CPUModel, "gpu_count": count(r.GPUs), "gpu_model": r.GPUModel,
		"ram_total_size": number(r.RAMTotal), "tracking_mode": "process",
		"cpu_utilization_percent": number(r.CPUPercent), "ram_utilization_percent": number(r.RAMPercent), "ram_used_gb": number(r.RAMUsed),
		"on_cloud": cloud, "pue": number(max(1, r.PUE)), "wue": "0.0",
	}
}

// A File is an emissions.csv, to which any number of processes append.
type File struct{ path string }

// OpenFile is the file of that path, which need not exist.
func OpenFile(path string) *File { return &File{path} }

// Append adds rows, whole or not at all. A file with other columns is kept
// under another name, as CodeCarbon does; one with the same columns in another
// order is written in its order.
func (f *File) Append(rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	dir, name := filepath.Split(f.path)
	unlock, err := lockedfile.MutexAt(filepath.Join(dir, "."+name+".lock")).Lock()
	if err != nil {
		return err
	}
	defer unlock()
	columns, torn, err := f.columns()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if columns == nil {
		columns = Columns()
		if err := w.Write(columns); err != nil {
			return err
		}
	} else if torn {
		b.WriteByte('\n')
	}
	for i := range rows {
		fields := rows[i].fields()
		record := make([]string, len(columns))
		for n, c := range columns {
			record[n] = fields[c]
		}
		if err := w.Write(record); err != nil {
			return err
		}
	}
	w.Flush()
	out, err := os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return err
	}
	if _, err := out.Write(b.Bytes()); err != nil {
		return errors.Join(err, out.Truncate(info.Size()))
	}
	return out.Close()
}

// columns are those of the file as it is; nil where it has to begin with them.
// torn says that it does not end with a line's end.
func (f *File) columns() (columns []string, torn bool, err error) {
	in, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, false, err
	}
	if !info.Mode().IsRegular() {
		return nil, false, fmt.Errorf("%s is not a regular file", f.path)
	}
	if info.Size() == 0 {
		return nil, false, nil
	}
	const maxHeader = 64 << 10
	r := csv.NewReader(io.LimitReader(in, maxHeader))
	r.FieldsPerRecord = -1
	columns, err = r.Read()
	if err == nil && len(columns) > 0 {
		columns[0] = string(bytes.TrimPrefix([]byte(columns[0]), []byte("\xef\xbb\xbf")))
	}
	want := Columns()
	if err != nil || !slices.Equal(slices.Sorted(slices.Values(columns)), slices.Sorted(slices.Values(want))) {
		return nil, false, f.backup()
	}
	var last [1]byte
	if _, err := in.ReadAt(last[:], info.Size()-1); err != nil {
		return nil, false, err
	}
	return columns, last[0] != '\n', nil
}

// backup puts a file of other columns aside.
func (f *File) backup() error {
	for n := 0; n < 1000; n++ {
		to := f.path + ".bak"
		if n > 0 {
			to = fmt.Sprintf("%s_%d.bak", f.path, n)
		}
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(f.path, to)
		}
	}
	return fmt.Errorf("%s has other columns than codecarbon %s writes, and there are too many backups of it", f.path, Version)
}
