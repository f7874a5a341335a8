package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// TestDecodeTaskFile: it reads what encoding/json reads.
func TestDecodeTaskFile(t *testing.T) {
	part, err := json.Marshal(TaskFile{Path: "a/ü", Mode: 0o644, Data: bytes.Repeat([]byte{0, 255}, MinTaskPart), More: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{
		string(part), `{"path":"a","leftOut":"gone"}`, `{"path":"a","directory":true}`, `{"path":"a","data":"\/w=="}`, `{"path":"a","data":null}`, `{ }`, `{"data":"","x":[1]}`,
	} {
		var want TaskFile
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeTaskFile([]byte(in)); err != nil || got.Path != want.Path || !bytes.Equal(got.Data, want.Data) || got.Mode != want.Mode || got.More != want.More || got.Directory != want.Directory || got.LeftOut != want.LeftOut {
			t.Errorf("%.60s: got %.100v, %v; want %.100v", in, got, err, want)
		}
	}
	for _, in := range []string{``, `7`, `[]`, `{"path":1}`, `{"data":1}`, `{"data":"*"}`, `{"data":"YQ"}`, `{"data":"YQ=="`, `{"mode":-1}`, `{"more":true,"data":"YQ=="}`} {
		if got, err := DecodeTaskFile([]byte(in)); err == nil {
			t.Errorf("%s: got %+v, want an error", in, got)
		}
	}
}

func FuzzDecodeTaskFile(f *testing.F) {
	for _, in := range []string{`{"path":"a","mode":420,"data":"YQ==","more":false}`, `{"path":"a","leftOut":"\u0000"}`, `{"data":"\u002f/8="}`, `{}`} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := DecodeTaskFile(in)
		if err != nil {
			return
		}
		out, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeTaskFile(out)
		if len(got.Data) == 0 {
			got.Data = nil
		}
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("got %+v, %v; want %+v", again, err, got)
		}
	})
}

func BenchmarkDecodeTaskFile(b *testing.B) {
	in, err := json.Marshal(TaskFile{Path: "a", Data: make([]byte, 768<<10), More: true})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(768 << 10)
	for b.Loop() {
		if _, err := DecodeTaskFile(in); err != nil {
			b.Fatal(err)
		}
	}
}
