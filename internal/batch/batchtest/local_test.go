package batchtest

import (
	"testing"

	"github.com/sallyport/sallyport/internal/batch"
)

func TestSuite(t *testing.T) {
	Run(t, func(t testing.TB) batch.Service { return NewLocal(t) })
}
