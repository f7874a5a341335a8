//go:build linux

package machine

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// types are those that the test of ctypes uses.
const types = `
import ctypes, ctypes.util, _ctypes, io, sys
from ctypes import *
class Point(Structure):
    _fields_ = ("x", c_int), ("y", c_double)
class Value(Union):
    _fields_ = ("i", c_uint32), ("b", c_ubyte * 4)
class Big(BigEndianStructure):
    _fields_ = ("i", c_uint32), ("h", c_uint16), ("first", c_uint16, 4), ("rest", c_uint16, 12)
class Node(Structure): pass
Node._fields_ = ("next", POINTER(Node)), ("n", c_int)
buffer = create_string_buffer(b"hello, world")
large = create_string_buffer(64 << 20)
data = bytearray(b"\x01\x00\x00\x00")
node = Node(None, 5)
`

func TestCtypes(t *testing.T) {
	img := openPython(t)
	c := calculate(start(t, img, sandbox.Limits{}))
	c.does(types, "None")
	t.Run("values", func(t *testing.T) {
		c.t = t
		for _, test := range []struct{ expression, want string }{
			{"[sizeof(t) for t in (c_char, c_short, c_int, c_long, c_longlong, c_void_p, c_double, c_longdouble, c_wchar, py_object)]", "[1, 2, 4, 4, 8, 4, 8, 16, 4, 4]"},
			{"sizeof(Point), alignment(Point), Point.y.offset, Point(1, 2.5).y", "(16, 8, 8, 2.5)"},
			{"list(Value(0x01020304).b)", "[4, 3, 2, 1]"},
			{"bytes(Big(1, 2, 3, 4)).hex()", "'0000000100023004'"},
			{"c_uint32.from_buffer(data).value, c_longlong(1 << 63).value, c_ubyte(257).value", "(1, -9223372036854775808, 1)"},
			{"Node(pointer(node), 1).next.contents.n, bool(node.next)", "(5, False)"},
			{"pointer(buffer).contents.value, cast(buffer, c_char_p).value, addressof(buffer) == cast(buffer, c_void_p).value", "(b'hello, world', b'hello, world', True)"},
			{"string_at(buffer), string_at(addressof(buffer) + 7, 3), wstring_at(create_unicode_buffer('Grüße'))", "(b'hello, world', b'wor', 'Grüße')"},
			{"memmove(buffer, b'HE', 2) == addressof(buffer), memset(addressof(buffer) + 5, 33, 2) == addressof(buffer) + 5, buffer.value", "(True, True, b'HEllo!!world')"},
			{"memset(large, 7, sizeof(large)) and memmove(byref(large, 1), large, sizeof(large) - 1) and set(string_at(large, sizeof(large)))", "{7}"},
			{"CFUNCTYPE(c_void_p, c_void_p, c_byte, c_ushort)(_ctypes._memset_addr)(buffer, -1, 2) and buffer.raw[:3]", "b'\\xff\\xffl'"},
			{"CFUNCTYPE(None, c_void_p, c_int, c_size_t)(_ctypes._memset_addr).restype, PyDLL(None)._name, CDLL(None)._name", "(None, None, None)"},
			{"string_at(0), c_int.from_address(0).value", "(b'', 0)"}, // an address as any other
			{"ctypes.util.find_library('c'), ctypes.util.find_library('m')", "(None, None)"},
		} {
			c.is(test.expression, test.want)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		c.t = t
		for _, test := range []struct{ code, want string }{
			{"CDLL('libc.so.6')", "OSError: libc.so.6: this sandbox has no libraries of machine code"},
			{"cdll.LoadLibrary('x' * 1000)", "OSError: " + strings.Repeat("x", 100) + ": this sandbox has no libraries of machine code"},
			{"CDLL(None).printf", "AttributeError: printf: this sandbox has no foreign functions"},
			{"PyDLL(None).PyLong_FromLong", "AttributeError: PyLong_FromLong: this sandbox has no foreign functions"},
			{"c_int.in_dll(PyDLL(None), 'Py_Version')", "ValueError: Py_Version: this sandbox has no foreign functions"},
			{"CFUNCTYPE(c_int, c_int)(abs)", "NotImplementedError: this sandbox has no callbacks: C cannot call functions of Python"},
			{"CFUNCTYPE(c_double)(1)()", "NotImplementedError: this sandbox calls only functions of up to 8 integers or pointers of 32 bits"},
			{"CFUNCTYPE(c_int, c_longlong)(1)(1)", "NotImplementedError: this sandbox calls only functions of up to 8 integers or pointers of 32 bits"},
			{"CFUNCTYPE(c_int, Point)(1)(Point())", "NotImplementedError: this sandbox calls only functions of up to 8 integers or pointers of 32 bits"},
			{"CFUNCTYPE(c_int, *[c_int] * 9)(1)(*range(9))", "NotImplementedError: this sandbox calls only functions of up to 8 integers or pointers of 32 bits"},
			{"create_string_buffer(1 << 30)", "MemoryError: "},
		} {
			c.does(test.code, test.want)
		}
	})
	for _, test := range []struct{ name, expression, want string }{
		{"no such function", "CFUNCTYPE(c_int)(12345678)()", "invalid table access"},
		{"function 0", "CFUNCTYPE(c_int)(0)()", "invalid table access"},
		{"negative", "CFUNCTYPE(c_int)(-1)()", "invalid table access"},
		{"another type", "CFUNCTYPE(c_int)(_ctypes._memset_addr)()", "indirect call type mismatch"},
		{"write beyond the end", "memset(0xfffffff0, 1, 8)", "out of bounds memory access"},
		{"read beyond the end", "string_at(0xfffffff0)", "out of bounds memory access"},
		{"write everywhere", "memset(0, 255, 0xfffffff0)", "out of bounds memory access"},
	} {
		t.Run(test.name, func(t *testing.T) {
			wrong := calculate(start(t, img, sandbox.Limits{}))
			wrong.does(types, "None")
			wrong.say(test.expression)
			got := wrong.ends()
			if got.Code != 134 || got.Reason != sandbox.Exited || !strings.Contains(got.Detail, "the interpreter has crashed: wasm error: "+test.want) {
				t.Errorf("got %+v, want that the interpreter has crashed: %s", got, test.want)
			}
			c.t = t
			c.is("string_at(buffer, 2)", "b'\\xff\\xff'") // others go on
		})
	}
}

// database opens a database twice.
const database = `
import sqlite3, os
path = "/workspace/x.db"
a, b = (sqlite3.connect(path, timeout=0.01, isolation_level=None) for _ in "ab")
a.execute("create table t(n)")
a.executemany("insert into t values(?)", [(i,) for i in range(3)])
def rows(c):
    return [n for n, in c.execute("select n from t")]
`

const locked = "OperationalError: database is locked"

// TestSQLite: connections of one session exclude each other as those of one process do on
// Linux.
func TestSQLite(t *testing.T) {
	img := openPython(t)
	open := func(t *testing.T) *calculation {
		c := calculate(start(t, img, sandbox.Limits{}))
		c.does(database, "None")
		return c
	}
	restored := func(t *testing.T, c *calculation) *calculation {
		t.Helper()
		var data bytes.Buffer
		if err := c.Snapshot(t.Context(), &data, true); err != nil {
			t.Fatal(err)
		}
		return calculate(restore(t, img, data.Bytes()))
	}
	t.Run("rollback journal", func(t *testing.T) {
		c := open(t)
		c.is("a.execute('pragma journal_mode').fetchall(), sorted(os.listdir('/workspace'))", "([('delete',)], ['x.db'])")
		c.does("a.execute('begin immediate'); a.execute('insert into t values(3)')", "None")
		c.is("rows(b)", "[0, 1, 2]")
		c.does("b.execute('insert into t values(4)')", locked)
		c.does("b.execute('begin immediate')", locked)
		c.does("a.execute('commit'); b.execute('insert into t values(4)')", "None")
		c.is("rows(a)", "[0, 1, 2, 3, 4]")
		c.does("reader = b.execute('select n from t'); next(reader)", "None")
		c.does("a.execute('insert into t values(5)')", locked) // a reader holds it up
		c.does("reader.close(); a.execute('insert into t values(5)')", "None")
		c.is("rows(b)", "[0, 1, 2, 3, 4, 5]")
		c.does("a.execute('begin exclusive')", "None")
		c.does("rows(b)", locked)
		c.does("a.close()", "None")
		c.is("rows(b), os.listdir('/workspace')", "([0, 1, 2, 3, 4, 5], ['x.db'])")
	})
	t.Run("other files", func(t *testing.T) {
		c := open(t)
		c.does("a.execute('begin exclusive'); os.rename(path, '/workspace/y.db')", "None")
		c.does("d = sqlite3.connect('/workspace/y.db', timeout=0.01); rows(d)", locked)
		c.does("e = sqlite3.connect(path); e.execute('create table t(n)'); e.execute('insert into t values(9)'); e.commit()", "None")
		c.is("rows(e)", "[9]")
		c.does("a.execute('commit')", "None")
		c.is("rows(d)", "[0, 1, 2]")
	})
	t.Run("write-ahead log", func(t *testing.T) {
		c := open(t)
		c.is("a.execute('pragma journal_mode=wal').fetchall()", "[('wal',)]")
		c.does("b.execute('begin'); reader = b.execute('select n from t'); next(reader)", "None")
		c.does("a.execute('insert into t values(3)')", "None") // no reader holds it up
		c.is("rows(a), [n for n, in reader]", "([0, 1, 2, 3], [1, 2])")
		c.does("b.execute('insert into t values(4)')", locked) // what it has read is old
		c.does("b.execute('commit'); a.execute('begin immediate')", "None")
		c.does("b.execute('insert into t values(4)')", locked)
		c.does("a.execute('insert into t values(5)'); a.execute('commit'); b.execute('insert into t values(6)')", "None")
		c.is("rows(a), a.execute('pragma wal_checkpoint(truncate)').fetchall()", "([0, 1, 2, 3, 5, 6], [(0, 0, 0)])")
		c.does("r = sqlite3.connect('file:%s?mode=ro' % path, uri=True)", "None")
		c.is("rows(r), sorted(os.listdir('/workspace'))", "([0, 1, 2, 3, 5, 6], ['x.db', 'x.db-shm', 'x.db-wal'])")
		c.does("[x.close() for x in (r, b, a)]", "None")
		c.is("os.listdir('/workspace')", "['x.db']")
		c.does("r = sqlite3.connect('file:%s?mode=ro' % path, uri=True)", "None")
		c.is("rows(r)", "[0, 1, 2, 3, 5, 6]")
	})
	t.Run("log of large transactions", func(t *testing.T) {
		c := open(t)
		c.does("a.execute('pragma journal_mode=wal'); a.execute('pragma wal_autocheckpoint=0')", "None")
		c.does("a.execute('pragma page_size'); a.execute('create table big(x)'); rows(b)", "None")
		// The index of the log needs a second and a third piece of memory.
		c.does("[a.execute('insert into big values(randomblob(3000))') for _ in range(9000)]", "None")
		c.is("b.execute('select count(*), sum(length(x)) from big').fetchone()", "(9000, 27000000)")
		c.is("b.execute('pragma integrity_check').fetchone()", "('ok',)")
		c.does("a.close(); b.close(); a = sqlite3.connect(path)", "None")
		c.is("a.execute('select count(*) from big').fetchone(), a.execute('pragma integrity_check').fetchone()", "((9000,), ('ok',))")
	})
	for _, mode := range []string{"delete", "wal"} {
		t.Run("snapshot of "+mode, func(t *testing.T) {
			c := open(t)
			c.is("a.execute('pragma journal_mode="+mode+"').fetchall()", "[('"+mode+"',)]")
			c.does("a.execute('begin immediate'); a.execute('insert into t values(3)')", "None")
			for _, c := range []*calculation{restored(t, c), c} {
				c.is("rows(a), rows(b)", "([0, 1, 2, 3], [0, 1, 2])")
				c.does("b.execute('insert into t values(4)')", locked)
				c.does("a.execute('commit'); b.execute('insert into t values(4)')", "None")
				c.is("rows(a), a.execute('pragma integrity_check').fetchone()", "([0, 1, 2, 3, 4], ('ok',))")
			}
		})
	}
}
