// Package toon encodes JSON values as TOON, Token-Oriented Object Notation, and
// decodes TOON back to JSON.
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
// Unmarshal(Marshal(x)) equals x: strings by their code points, numbers by their
// value, arrays by their order, objects by members and their order. Objects that
// were encoded as rows are the one exception: they come back with the keys in
// the order of the first row (§2).
//
// Numbers are decimals of any precision, never floats, so an integer beyond 2^53
// survives. Both directions write them in the canonical form of §2; outside that
// form's range (below 1e-6, from 1e21) an exponent is used, or plain digits for
// an integer that they write in no more characters. A number whose exponent
// exceeds a million in magnitude is an error, in JSON and in TOON.
//
// # What is rejected
//
// The decoder is strict (§14) unless Options.Lenient is set. These choices, which
// the specification leaves open or to non-strict decoders, are ours:
//
//   - a malformed header is, when lenient, a member with a literal key, as the
//     fixtures have it; "foo [2]: x" is one always (§5.2), while "foo-bar[2]: x"
//     is an array although an encoder would have quoted the key (appendix B.2);
//   - a field's name in a header may be any text without quotes, braces, colons
//     and delimiters, unless it is quoted;
//   - lenient decoding ignores declared lengths and blank lines, rounds
//     indentation down and lets the last of two equal keys win, in the place of
//     the first;
//   - tabs in indentation, ill-formed UTF-8, rows of the wrong width, lines that
//     belong to no scope and content behind the document's root are errors even
//     then, because reading on would lose data in silence;
//   - a byte order mark at the start of a document is dropped.
//
// Lone surrogates cannot be expressed in TOON and make Marshal fail.
//
// # Limits
//
// Both directions bound nesting and size (Options.MaxDepth, Options.MaxBytes),
// and the work grows with the size, so hostile input costs at most a multiple of
// MaxBytes: the worst is a value of 32 bytes for each byte. A declared length is
// compared, never trusted. Nothing is shared between calls: all functions are
// safe for concurrent use.
package toon
