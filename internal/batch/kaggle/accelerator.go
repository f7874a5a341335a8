package kaggle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// The accelerators that the short names stand for.
const (
	shapeGPU = "NvidiaTeslaT4"
	shapeTPU = "TpuV5E8"
)

// shapes are the accelerators that Kaggle's own documentation names. Some are
// for participants of certain competitions only.
var shapes = []string{
	shapeGPU, "NvidiaTeslaT4Highmem", "NvidiaTeslaA100", "NvidiaL4", "NvidiaL4X1", "NvidiaH100", "NvidiaRtxPro6000", shapeTPU, "TpuV6E8",
}

// retired are accelerators whose names Kaggle still accepts, with what it
// provides instead.
var retired = map[string]string{
	"NvidiaTeslaP100": shapeGPU, "TpuV38": shapeTPU, "Tpu1VmV38": shapeTPU, "TpuV232": "no accelerator", "TpuV2256": "no accelerator",
}

var validShape = lazyregexp.New(`\A[A-Za-z][A-Za-z0-9]{2,39}\z`)

// accelerator returns the machine shape that a name stands for; "" is none. The
// note, if any, explains a difference from what was requested.
func accelerator(asked, fallback string) (shape, note string, err error) {
	if asked == "" {
		asked = fallback
	}
	switch strings.ToLower(asked) {
	case "", "none", "cpu":
		return "", "", nil
	case "gpu":
		return shapeGPU, "", nil
	case "tpu":
		return shapeTPU, "", nil
	}
	for _, s := range shapes {
		if strings.EqualFold(s, asked) {
			return s, "", nil
		}
	}
	for s, instead := range retired {
		if strings.EqualFold(s, asked) {
			return s, fmt.Sprintf("Kaggle has retired %s and gives %s", s, instead), nil
		}
	}
	// A newer one than those in this list starts like them.
	if validShape().MatchString(asked) && (strings.HasPrefix(asked, "Nvidia") || strings.HasPrefix(asked, "Tpu")) {
		return asked, "", nil
	}
	return "", "", fmt.Errorf("accelerator %q: want gpu, tpu, none, or one of %s", asked, strings.Join(shapes, ", "))
}

// LeastGPUs is how many accelerators of a model a run at Kaggle holds at least.
// A machine with T4s has two of them.
func LeastGPUs(model string) int {
	if slices.Contains(strings.Fields(strings.ToLower(model)), "t4") || strings.EqualFold(model, shapeGPU) {
		return 2
	}
	return 1
}

func isGPU(shape string) bool { return strings.HasPrefix(shape, "Nvidia") }
func isTPU(shape string) bool { return strings.HasPrefix(shape, "Tpu") }
