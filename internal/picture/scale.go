package picture

import (
	"errors"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
)

// scale returns a picture whose longer side has at most that many pixels: each is the
// mean of those that it stands for. It holds a row of the source at a time.
func scale(from image.Image, side int) *image.RGBA {
	b := from.Bounds()
	w, h := b.Dx(), b.Dy()
	toW, toH := w, h
	if longer := max(w, h); longer > side {
		toW, toH = max(1, w*side/longer), max(1, h*side/longer)
	}
	to := image.NewRGBA(image.Rect(0, 0, toW, toH))
	row := image.NewRGBA(image.Rect(0, 0, w, 1))
	if toW == w && toH == h {
		draw.Draw(to, to.Rect, from, b.Min, draw.Src)
		return to
	}
	sums := make([]uint64, toW*4)
	// A pixel of the source is toW wide and toH high, one of the result w and h.
	full := uint64(w) * uint64(h)
	y := 0 // of the result
	for sy := range h {
		draw.Draw(row, row.Rect, from, image.Pt(b.Min.X, b.Min.Y+sy), draw.Src)
		for top, bottom := sy*toH, (sy+1)*toH; top < bottom; {
			end := min(bottom, (y+1)*h)
			addRow(sums, row.Pix, w, toW, uint64(end-top))
			if top = end; top == (y+1)*h {
				line := to.Pix[y*to.Stride:]
				for i, sum := range sums {
					line[i] = uint8((sum + full/2) / full)
				}
				clear(sums)
				y++
			}
		}
	}
	return to
}

// addRow adds a part of a row of the source, that many units high, to the sums of a row
// of the result.
func addRow(sums []uint64, pix []uint8, w, toW int, high uint64) {
	x := 0 // of the result
	for sx := range w {
		p := pix[sx*4 : sx*4+4 : sx*4+4]
		for left, right := sx*toW, (sx+1)*toW; left < right; {
			end := min(right, (x+1)*w)
			area := uint64(end-left) * high
			s := sums[x*4 : x*4+4 : x*4+4]
			s[0] += area * uint64(p[0])
			s[1] += area * uint64(p[1])
			s[2] += area * uint64(p[2])
			s[3] += area * uint64(p[3])
			if left = end; left == (x+1)*w {
				x++
			}
		}
	}
}

// encode encodes a picture into MaxBytes: as it is if that fits, and else with less and
// less of its details.
func encode(m *image.RGBA, lossless bool) ([]byte, string, error) {
	if lossless {
		out := limited{}
		if err := png.Encode(&out, m); err == nil {
			return out.data, "image/png", nil
		}
	}
	if !m.Opaque() {
		over := image.NewRGBA(m.Rect)
		draw.Draw(over, over.Rect, image.NewUniform(color.White), image.Point{}, draw.Src)
		draw.Draw(over, over.Rect, m, image.Point{}, draw.Over)
		m = over
	}
	for {
		for _, quality := range []int{85, 70, 55} {
			out := limited{}
			err := jpeg.Encode(&out, m, &jpeg.Options{Quality: quality})
			if err == nil {
				return out.data, "image/jpeg", nil
			}
			if !errors.Is(err, errFull) {
				return nil, "", err
			}
		}
		m = scale(m, max(m.Rect.Dx(), m.Rect.Dy())*7/10)
	}
}

var errFull = errors.New("larger than a picture may be")

// limited holds MaxBytes.
type limited struct{ data []byte }

func (l *limited) Write(p []byte) (int, error) {
	if len(l.data)+len(p) > MaxBytes {
		return 0, errFull
	}
	l.data = append(l.data, p...)
	return len(p), nil
}
