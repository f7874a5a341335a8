package metrics

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ContentType is that of what Write writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// escaped replaces what the text format does not allow in the value of a label.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// Write writes the metrics as Prometheus reads them.
func (s Snapshot) Write(w io.Writer) error {
	var b strings.Builder
	for _, f := range families {
		if len(s[f.name]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for _, one := range s[f.name] {
			var labels strings.Builder
			for i, name := range f.labels {
				fmt.Fprintf(&labels, `%s="%s",`, name, escaped.Replace(strings.ToValidUTF8(one.Labels[i], "\uFFFD")))
			}
			if one.Times != nil {
				one.Times.write(&b, f.name, labels.String())
				continue
			}
			sample(&b, f.name, labels.String(), one.Value)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (h *Histogram) write(b *strings.Builder, name, labels string) {
	for _, bound := range published {
		sample(b, name+"_bucket", labels+`le="`+number(bound)+`"`, float64(h.upTo(bound)))
	}
	sample(b, name+"_bucket", labels+`le="+Inf"`, float64(h.Count))
	sample(b, name+"_sum", labels, h.Sum)
	sample(b, name+"_count", labels, float64(h.Count))
}

func sample(b *strings.Builder, name, labels string, value float64) {
	b.WriteString(name)
	if labels = strings.TrimSuffix(labels, ","); labels != "" {
		b.WriteString("{" + labels + "}")
	}
	b.WriteString(" " + number(value) + "\n")
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
