package picture

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"testing"
)

// noise is a picture that cannot be compressed.
func noise(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(m.Pix)
	return m
}

// ramp is a smooth picture: light on its left, dark on its right.
func ramp(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.SetRGBA(x, y, color.RGBA{uint8(255 - 255*x/w), uint8((x ^ y) & 3), uint8(y), 255})
		}
	}
	return m
}

func encodePNG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encodeJPEG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 98}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encodeGIF(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gif.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// webpOf is one pixel, padded by a chunk that readers skip.
func webpOf(t testing.TB, pad int) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
	if err != nil {
		t.Fatal(err)
	}
	if pad > 0 {
		data = append(append(data, "JUNK"...), binary.LittleEndian.AppendUint32(nil, uint32(pad))...)
		data = append(data, make([]byte, pad)...)
		binary.LittleEndian.PutUint32(data[4:], uint32(len(data)-8))
	}
	return data
}

// bomb is a PNG that says it is that large.
func bomb(t testing.TB, w, h uint32) []byte {
	t.Helper()
	data := encodePNG(t, image.NewGray(image.Rect(0, 0, 1, 1)))
	binary.BigEndian.PutUint32(data[16:], w)
	binary.BigEndian.PutUint32(data[20:], h)
	binary.BigEndian.PutUint32(data[29:], crc32.ChecksumIEEE(data[12:29]))
	return data
}

func TestShrink(t *testing.T) {
	t.Parallel()
	small, flat := encodePNG(t, ramp(20, 10)), image.NewPaletted(image.Rect(0, 0, maxSide+1, 1), color.Palette{color.Black})
	smallJPEG, smallGIF := encodeJPEG(t, ramp(20, 10)), encodeGIF(t, ramp(20, 10))
	scans := append(bytes.Repeat([]byte("\xff\xda"), maxScans), encodeJPEG(t, noise(600, 600))...)
	scans = append([]byte("\xff\xd8\xff"), scans...)
	for _, tt := range []struct {
		name              string
		data              []byte
		kind, from, fault string // a kind with no from: as it was
	}{
		{"small PNG", small, "image/png", "", ""},
		{"small JPEG", smallJPEG, "image/jpeg", "", ""},
		{"small GIF", smallGIF, "image/gif", "", ""},
		{"small WebP", webpOf(t, 0), "image/webp", "", ""},
		{"wide PNG", encodePNG(t, flat), "image/png", "8001×1", ""},
		{"wide GIF", encodeGIF(t, flat), "image/png", "8001×1", ""},
		{"PNG that fits when smaller", encodePNG(t, smooth(t)), "image/png", "3200×2000", ""},
		{"noisy PNG", encodePNG(t, noise(1000, 700)), "image/jpeg", "1000×700", ""},
		{"large JPEG", encodeJPEG(t, noise(3000, 1000)), "image/jpeg", "3000×1000", ""},
		{"large GIF", encodeGIF(t, noise(900, 900)), "image/jpeg", "900×900", ""},
		{"large WebP", webpOf(t, MaxBytes), "image/jpeg", "1×1", ""},
		{"PNG without its end", small[:len(small)-1], "image/png", "", "incomplete"},
		{"JPEG without its end", smallJPEG[:len(smallJPEG)-2], "image/jpeg", "", "incomplete"},
		{"WebP without its end", webpOf(t, 0)[:20], "image/webp", "", "incomplete"},
		{"beginning of a GIF", smallGIF[:8], "image/gif", "", damaged},
		{"WebP of nothing", []byte("RIFF\x08\x00\x00\x00WEBPVP8 "), "image/webp", "", damaged},
		{"damaged PNG", append(append(bytes.Clone(small[:60]), make([]byte, MaxBytes)...), small[60:]...), "image/png", "", damaged},
		{"bomb", bomb(t, 1<<20, 1<<20), "image/png", "", "1048576×1048576, too large to be made smaller"},
		{"smaller bomb", bomb(t, 8001, 8000), "image/png", "", "8001×8000, too large to be made smaller"},
		{"JPEG of many scans", scans, "image/jpeg", "", damaged},
		{"SVG", []byte("<svg/>"), "", "", ""},
		{"BMP", []byte("BM1234"), "", "", ""},
		{"nothing", nil, "", "", ""},
	} {
		p, fault := Shrink(tt.data)
		if p.MIMEType != tt.kind || p.From != tt.from || fault != tt.fault {
			t.Errorf("%s: got %q from %q, %q; want %q from %q, %q", tt.name, p.MIMEType, p.From, fault, tt.kind, tt.from, tt.fault)
			continue
		}
		if fault != "" || tt.kind == "" {
			continue
		}
		if tt.from == "" {
			if !bytes.Equal(p.Data, tt.data) {
				t.Errorf("%s: it is another picture", tt.name)
			}
			continue
		}
		m, as, err := image.Decode(bytes.NewReader(p.Data))
		if err != nil || "image/"+as != p.MIMEType || len(p.Data) > MaxBytes || max(m.Bounds().Dx(), m.Bounds().Dy()) > scaledSide {
			t.Errorf("%s: got %d bytes of %s, %v", tt.name, len(p.Data), as, err)
		}
	}
}

// smooth is a large picture that is small enough for a PNG once it is scaled.
func smooth(t *testing.T) image.Image {
	t.Helper()
	m := ramp(3200, 2000)
	for n := range 300 { // what the mean of pixels removes, and a PNG holds
		for x := range 1000 {
			m.SetRGBA(x, n, color.RGBA{uint8(x * n), uint8(x * x * n), uint8(n * x >> 3), 255})
		}
	}
	return m
}

// TestScale: pixels are means, and what is transparent adds no colour.
func TestScale(t *testing.T) {
	t.Parallel()
	m := image.NewNRGBA(image.Rect(5, 5, 11, 8)) // 6×3
	for y := 5; y < 8; y++ {
		for x := 5; x < 11; x++ {
			c := color.NRGBA{200, 0, 0, 255}
			if x >= 8 {
				c = color.NRGBA{0, 255, 0, 0}
			}
			m.SetNRGBA(x, y, c)
		}
	}
	got := scale(m, 4) // 4×2: the border is within a pixel of 1.5
	if want := image.Rect(0, 0, 4, 2); got.Rect != want {
		t.Fatalf("got %v, want %v", got.Rect, want)
	}
	for x, want := range []color.RGBA{{200, 0, 0, 255}, {200, 0, 0, 255}, {}, {}} {
		if got := got.RGBAAt(x, 1); got != want {
			t.Errorf("pixel %d: got %v, want %v", x, got, want)
		}
	}
	if got, want := scale(m, 5).RGBAAt(2, 0), (color.RGBA{100, 0, 0, 128}); got != want { // 5×2
		t.Errorf("got %v, want %v", got, want)
	}
	data, kind, err := encode(scale(m, 4), false)
	if err != nil || kind != "image/jpeg" {
		t.Fatal(kind, err)
	}
	white, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if r, g, b, _ := white.At(3, 1).RGBA(); min(r, g, b)>>8 < 230 {
		t.Errorf("what is transparent is %d %d %d, want white", r>>8, g>>8, b>>8)
	}
}

// TestMemory: what decoding takes is known before.
func TestMemory(t *testing.T) {
	t.Parallel()
	c := image.Config{Width: 1000, Height: 1000}
	header := func(marker byte, sampling ...byte) []byte {
		b := []byte{0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, marker, 0, byte(8 + 3*len(sampling)), 8, 3, 232, 3, 232, byte(len(sampling))}
		for n, s := range sampling {
			b = append(b, byte(n), s, 0)
		}
		return b
	}
	const all = 1032 * 1032
	for _, tt := range []struct {
		name string
		data []byte
		want int64
	}{
		{"grey", header(0xc0, 0x11), all},
		{"4:2:0", header(0xc0, 0x22, 0x11, 0x11), all * 3 / 2},
		{"4:4:4 progressive", header(0xc2, 0x11, 0x11, 0x11), all * 15},
		{"CMYK progressive", header(0xc2, 0x11, 0x11, 0x11, 0x11), all * 36},
		{"nothing", []byte{0xff, 0xd8}, 20_000_000},
		{"cut", header(0xc2, 0x11)[:14], 20_000_000},
		{"no sampling", header(0xc0, 0), 20_000_000},
	} {
		if got := jpegMemory(tt.data, c); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

func FuzzShrink(f *testing.F) {
	for _, data := range [][]byte{
		encodePNG(f, ramp(20, 10)), encodeJPEG(f, ramp(20, 10)), encodeGIF(f, ramp(20, 10)), webpOf(f, 0), bomb(f, 1<<20, 1<<20), bomb(f, 9000, 2), nil,
	} {
		f.Add(data, false)
		f.Add(data, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, long bool) {
		if long { // what is short is not decoded
			data = append(data, make([]byte, MaxBytes)...)
		}
		p, fault := Shrink(data)
		if fault == "" && p.MIMEType != "" && len(p.Data) > MaxBytes {
			t.Errorf("%d bytes, want at most %d", len(p.Data), MaxBytes)
		}
	})
}
