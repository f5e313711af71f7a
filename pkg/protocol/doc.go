// Package protocol holds the words and wire formats that every other package
// shares: workers, blocks, events, registrations, routing calls, leases, the
// names of subjects, streams and buckets, and the hashing of prompt blocks.
//
// It does no I/O, starts no goroutine and keeps no state. Everything in it is
// safe for concurrent use as long as a value is not written while it is read.
//
// Bodies are JSON or msgpack with the same field names. Every decoder of
// outside input reads both through one cursor (see reader.go), so that a field
// is described once, 64-bit integers never pass through a float, and an error
// names the field that is wrong.
package protocol
