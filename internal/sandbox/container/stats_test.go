package container

import (
	"testing"
	"time"
)

func TestParseStats(t *testing.T) {
	for name, tt := range map[string]struct {
		data string
		want stats
	}{
		"docker": {`{"BlockIO":"0B / 0B","CPUPerc":"12.50%","Container":"st","ID":"a17b9c05a7ae","MemPerc":"0.01%","MemUsage":"3.25MiB / 23.54GiB","Name":"st","NetIO":"0B / 0B","PIDs":"1"}` + "\n",
			stats{cpu: -1, share: 0.125, memory: 3<<20 + 1<<18}},
		"podman": {"[\n {\n  \"id\": \"1f2af98450cf\",\n  \"name\": \"st\",\n  \"cpu_time\": \"1m2.5s\",\n  \"cpu_percent\": \"30.80%\",\n  \"mem_usage\": \"3.5MB / 25.28GB\",\n  \"pids\": \"1\"\n }\n]\n",
			stats{cpu: 62*time.Second + 500*time.Millisecond, memory: 3500000}},
		"idle": {`{"CPUPerc":"0.00%","MemUsage":"0B / 0B"}`, stats{cpu: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseStats([]byte(tt.data))
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
	for name, data := range map[string]string{
		"nothing":         ``,
		"an empty list":   `[]`,
		"unknown share":   `{"CPUPerc":"--","MemUsage":"-- / --"}`,
		"negative":        `{"CPUPerc":"-1%","MemUsage":"1B / 1B"}`,
		"no memory":       `{"CPUPerc":"1%"}`,
		"memory unknown":  `{"CPUPerc":"1%","MemUsage":"-- / --"}`,
		"memory negative": `{"CPUPerc":"1%","MemUsage":"-5MiB / 1GiB"}`,
		"not a number":    `{"CPUPerc":"NaN%","MemUsage":"1B / 1B"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := parseStats([]byte(data)); err == nil {
				t.Errorf("accepted as %+v", got)
			}
		})
	}
}

func FuzzParseStats(f *testing.F) {
	f.Add([]byte(`{"CPUPerc":"12.50%","MemUsage":"3.25MiB / 23.54GiB"}`))
	f.Add([]byte(`[{"cpu_time":"57.666965ms","mem_usage":"3.547MB / 25.28GB"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseStats(data)
		if err == nil && (s.memory < 0 || s.cpu < 0 && s.cpu != -1 || !(s.share >= 0)) {
			t.Errorf("%+v", s)
		}
	})
}
