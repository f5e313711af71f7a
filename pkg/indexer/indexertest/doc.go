// Package indexertest checks an implementation of indexer.Index against what the
// interface promises.
//
// Run is the contract: named cases, random operations compared with the Model,
// and a race of writers and readers. RunScripts and RunOperations replay recorded
// scripts with known answers. The Model is the yardstick: a map per worker, as
// slow and as plain as can be; it implements the interface, so that the contract
// also holds the Model itself to account.
//
// Random tests print their seed and the operations that are left after reduction;
// Options.Seed runs one again.
package indexertest
