// Package indexertest checks an implementation of indexer.Index against what the
// interface promises.
//
// Run is the whole contract: Cases, named and by hand; Random, operations by
// seed, compared with the Model call by call; Race, writers and readers at once.
// The Model is the yardstick: a map per worker, as slow and as plain as can be.
// It implements the interface, so the contract holds the Model to account as well.
//
// A random run that fails prints its seed and the operations that are left after
// reduction; Options.Seed plays it again.
package indexertest
