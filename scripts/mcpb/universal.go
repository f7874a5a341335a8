package main

import (
	"bytes"
	"debug/macho"
	"encoding/binary"
	"errors"
)

// universal returns one executable for macOS made of those for several
// architectures, or the only one as it is.
func universal(executables [][]byte) ([]byte, error) {
	if len(executables) == 1 {
		return executables[0], nil
	}
	const (
		align       = 14 // 2^14 bytes: a page of arm64
		headerSize  = 8
		archSize    = 20
		magicNumber = macho.MagicFat
	)
	type arch struct{ CPU, Sub, Offset, Size, Align uint32 }
	var header, body bytes.Buffer
	_ = binary.Write(&header, binary.BigEndian, [2]uint32{magicNumber, uint32(len(executables))})
	first := headerSize + archSize*len(executables)
	for _, data := range executables {
		f, err := macho.NewFile(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		for (first+body.Len())%(1<<align) != 0 {
			body.WriteByte(0)
		}
		end := int64(first) + int64(body.Len()) + int64(len(data))
		if end > 1<<32-1 {
			return nil, errors.New("together they are too large for a universal executable")
		}
		_ = binary.Write(&header, binary.BigEndian, arch{uint32(f.Cpu), f.SubCpu, uint32(first + body.Len()), uint32(len(data)), align})
		body.Write(data)
	}
	return append(header.Bytes(), body.Bytes()...), nil
}
