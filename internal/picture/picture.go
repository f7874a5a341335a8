// Package picture makes pictures small enough for a model to read. Pictures come from
// sandboxes: each may be made to harm whoever decodes it. One is decoded at a time, and
// what that may take of the memory is known before.
package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"sync"

	"golang.org/x/image/webp"
)

const (
	// MaxBytes is the most that a picture has after Shrink.
	MaxBytes = 300_000
	// maxSide is the most that APIs accept of a picture's width and height.
	maxSide = 8000
	// scaledSide is the longer side of a picture that is made smaller: models see no
	// more of a larger one.
	scaledSide = 1568
	// maxScaled is the most that is made smaller: a row of it is held.
	maxScaled = 1 << 16
	// maxMemory bounds what decoding a picture takes.
	maxMemory = 128 << 20
	// maxScans bounds the parts of a JPEG, of which each may take a look at all of its
	// pixels.
	maxScans = 100
)

const damaged = "damaged"

// Picture is one that clients show.
type Picture struct {
	MIMEType string // empty: not a picture of a kind that clients show
	Data     []byte
	// From is the size of the picture that this one was made from: "4000×3000". It
	// is empty for one as it was.
	From string
}

// Shrink returns a picture with at most MaxBytes. fault says why there is none: APIs
// refuse a whole conversation for one picture that they cannot read.
func Shrink(data []byte) (p Picture, fault string) {
	kind := http.DetectContentType(data)
	f, ok := formats()[kind]
	if !ok {
		return Picture{}, ""
	}
	p = Picture{MIMEType: kind, Data: data}
	if !f.whole(data) {
		return p, "incomplete"
	}
	size, err := f.config(data)
	longer := max(size.Width, size.Height)
	switch {
	case err != nil || min(size.Width, size.Height) <= 0:
		return p, damaged
	case len(data) <= MaxBytes && longer <= maxSide:
		return p, "" // what reads it makes it smaller, if it must
	case longer > maxScaled || f.memory(data, size) > maxMemory:
		return p, fmt.Sprintf("%d×%d, too large to be made smaller", size.Width, size.Height)
	}
	out, kind, err := scaled(f, data)
	if err != nil {
		return p, damaged
	}
	return Picture{MIMEType: kind, Data: out, From: fmt.Sprintf("%d×%d", size.Width, size.Height)}, ""
}

// one is held while a picture is decoded.
var one sync.Mutex

// scaled makes a picture smaller.
func scaled(f format, data []byte) (out []byte, kind string, err error) {
	one.Lock()
	defer one.Unlock()
	defer func() { // decoders have had such faults
		if fault := recover(); fault != nil {
			err = fmt.Errorf("decoding: %v", fault)
		}
	}()
	source, err := f.decode(data)
	if err != nil {
		return nil, "", err
	}
	small := scale(source, scaledSide)
	return encode(small, f.lossless)
}

// format is a kind of pictures.
type format struct {
	lossless bool
	// whole reports whether the end is there.
	whole  func([]byte) bool
	config func([]byte) (image.Config, error)
	decode func([]byte) (image.Image, error)
	// memory is the most that decoding takes.
	memory func([]byte, image.Config) int64
}

func formats() map[string]format {
	return map[string]format{
		"image/png": {
			lossless: true,
			whole:    func(b []byte) bool { return bytes.Contains(b, []byte("IEND\xaeB`\x82")) },
			config:   func(b []byte) (image.Config, error) { return png.DecodeConfig(bytes.NewReader(b)) },
			decode:   func(b []byte) (image.Image, error) { return png.Decode(bytes.NewReader(b)) },
			memory:   pngMemory,
		},
		"image/jpeg": {
			whole:  func(b []byte) bool { return bytes.Contains(b, []byte("\xff\xd9")) },
			config: func(b []byte) (image.Config, error) { return jpeg.DecodeConfig(bytes.NewReader(b)) },
			decode: func(b []byte) (image.Image, error) { return jpeg.Decode(bytes.NewReader(b)) },
			memory: jpegMemory,
		},
		"image/gif": { // of which the first frame is decoded
			lossless: true,
			whole:    func([]byte) bool { return true },
			config:   func(b []byte) (image.Config, error) { return gif.DecodeConfig(bytes.NewReader(b)) },
			decode:   func(b []byte) (image.Image, error) { return gif.Decode(bytes.NewReader(b)) },
			memory:   func(_ []byte, c image.Config) int64 { return pixels(c) * 2 }, // interlaced: a copy
		},
		"image/webp": {
			whole: func(b []byte) bool {
				return int64(len(b)) >= int64(binary.LittleEndian.Uint32(b[4:]))+8
			},
			config: func(b []byte) (image.Config, error) { return webp.DecodeConfig(bytes.NewReader(b)) },
			decode: func(b []byte) (image.Image, error) { return webp.Decode(bytes.NewReader(b)) },
			memory: func(_ []byte, c image.Config) int64 { return pixels(c) * 10 }, // without loss: pixels, and what transforms them
		},
	}
}

func pixels(c image.Config) int64 { return int64(c.Width) * int64(c.Height) }

func pngMemory(data []byte, c image.Config) int64 {
	const depth, kind, interlaced = 24, 25, 28 // their places in a file whose config was read
	each := int64(4)
	switch {
	case data[kind] == 3: // with a palette
		each = 1
	case data[depth] == 16:
		each = 8
	}
	if data[interlaced] != 0 {
		each *= 2
	}
	return pixels(c) * each
}

// jpegMemory reads how a picture is sampled. Of a progressive one, all coefficients are
// held.
func jpegMemory(data []byte, c image.Config) int64 {
	const worst = 20
	if bytes.Count(data, []byte("\xff\xda")) > maxScans {
		return maxMemory + 1
	}
	for at := 2; at+4 <= len(data) && data[at] == 0xff; {
		marker, size := data[at+1], int(binary.BigEndian.Uint16(data[at+2:]))
		if marker == 0xff {
			at++
			continue
		}
		if marker < 0xc0 || marker > 0xc2 {
			if at += 2 + size; size < 2 {
				break
			}
			continue
		}
		head := data[at+4 : min(len(data), at+2+max(2, size))]
		if len(head) < 6 || len(head) < 6+3*int(head[5]) {
			break
		}
		var samples, most int64
		for n := range int(head[5]) {
			s := int64(head[6+3*n+1]>>4) * int64(head[6+3*n+1]&15)
			samples, most = samples+s, max(most, s)
		}
		if most == 0 {
			break
		}
		each := int64(1)
		if marker == 0xc2 {
			each += 4
		}
		if head[5] == 4 {
			each += 4 // it is made from its parts
		}
		// Blocks are whole: up to 31 pixels more on each side.
		return (int64(c.Width) + 32) * (int64(c.Height) + 32) * samples * each / most
	}
	return pixels(c) * worst
}

// reading is held while a large picture is in memory.
var reading sync.Mutex

// Read is Shrink of what from has. More than size bytes are an error.
func Read(from io.Reader, size int64) (p Picture, fault string, err error) {
	if size > MaxBytes {
		reading.Lock()
		defer reading.Unlock()
	}
	data, err := io.ReadAll(io.LimitReader(from, size+1))
	if err == nil && int64(len(data)) > size {
		err = errors.New("it is larger than it was")
	}
	if err != nil {
		return Picture{}, "", err
	}
	p, fault = Shrink(data)
	return p, fault, nil
}
