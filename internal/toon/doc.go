// Package toon encodes JSON values as TOON, Token-Oriented Object Notation. Its
// tests have a decoder, which checks that the encoder loses nothing.
//
// toon-spec: 4.0 (https://github.com/toon-format/spec, of 2026-07-22). The
// comments name that specification's sections.
//
// # The notation
//
// TOON is JSON's data model written by lines and indentation:
//
//   - an object is a line "key: value" for each member; an object or array as a
//     value is a line "key:" with its contents one level deeper (§8);
//   - an array of scalars stands on one line behind its length,
//     "tags[2]: a,b" (§9.1);
//   - an array of objects with the same keys is a table, "users[2]{id,name}:"
//     and a line of cells for each object; a column of objects with the same
//     keys is a group, "{id,owner{name,mail}}" (§9.3);
//   - an object of two or more such objects is a table whose rows have names,
//     "hosts[2:]{ip,port}:" and lines "alpha: 10.0.0.1,80" (§9.5);
//   - any other array is a list, a line "- item" for each element (§9.4, §10);
//   - a string is quoted only where it could be read as something else (§7.2).
//
// # What is preserved
//
// A document decodes to what was encoded: strings by their code points, numbers
// by their value, arrays by their order, objects by members and their order.
// Objects that were encoded as rows are the one exception: they come back with
// the keys in the order of the first row (§2).
//
// Numbers are decimals of any precision, never floats, so an integer beyond 2^53
// survives. They are written in the canonical form of §2; outside that form's
// range (below 1e-6, from 1e21) an exponent is used, or plain digits for an
// integer that they write in no more characters. A number whose exponent exceeds
// a million in magnitude is an error.
//
// Lone surrogates cannot be expressed in TOON and make Marshal fail.
//
// # Limits
//
// Marshal bounds nesting and size (Options.MaxDepth, Options.MaxBytes), and the
// work grows with the size, so hostile input costs at most a multiple of MaxBytes:
// the worst is a value of 32 bytes for each byte. Marshal is safe for concurrent
// use.
package toon
