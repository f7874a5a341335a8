package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxName bounds the names that FileName makes, without the extension: file
// systems allow 255 bytes.
const maxName = 180

// reserved are names that Windows gives to devices, whatever their extension.
const reserved = " con prn aux nul com0 com1 com2 com3 com4 com5 com6 com7 com8 com9 lpt0 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9 "

// FileName returns a file name for any string. Different strings have different
// names, even on file systems that ignore case or compose accents. Plain
// characters stay readable: a capital is preceded by a plus sign, other bytes
// become %xx, and a long string is cut and followed by a digest.
func FileName(text, extension string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		case c >= 'A' && c <= 'Z':
			b.WriteByte('+')
			b.WriteByte(c + 'a' - 'A')
		default:
			b.WriteByte('%')
			b.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	name := b.String()
	if first, _, _ := strings.Cut(name, "."); strings.Contains(reserved, " "+first+" ") {
		name = "%" + hex.EncodeToString([]byte{name[0]}) + name[1:]
	}
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(text))
		name = name[:maxName-2*len(sum)-1] + "~" + hex.EncodeToString(sum[:])
	}
	return name + extension
}

// TextOf returns the string that FileName was called with; for a long one, only
// the part that the name contains.
func TextOf(name, extension string) string {
	name = strings.TrimSuffix(name, extension)
	name, _, _ = strings.Cut(name, "~")
	var b []byte
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c == '+' && i+1 < len(name) && name[i+1] >= 'a' && name[i+1] <= 'z':
			i++
			b = append(b, name[i]-'a'+'A')
		case c == '%' && i+2 < len(name):
			if raw, err := hex.DecodeString(name[i+1 : i+3]); err == nil {
				i += 2
				c = raw[0]
			}
			b = append(b, c)
		default:
			b = append(b, c)
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
