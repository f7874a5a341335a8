// Package approval asks people. A [Book] holds the questions that are open: calls
// that a rule of the gate lets go out only when a person agrees. Calls of one tool
// that wait at the same time are one question, which grows until it is answered.
//
// An answer covers what its question showed and nothing else: it names the
// question and its revision, and calls that came later are asked about again. Code
// in the sandbox can neither answer nor see a question; it waits, or is refused.
package approval
