// Package embedded runs the NATS server that routerd carries inside itself, and
// opens the connections of a router: to that server, or to a cluster of the
// user's.
//
// # The server
//
// Start makes one NATS server with JetStream on disk in the folder of
// [Config.Store], without signal handlers and without a log of its own: its
// warnings and errors go to [Config.Log]. The folder is locked for as long as
// the server lives (an flock on `routerd.lock`, which holds the process id), so
// a second process ends with a [LockedError] instead of writing to the same
// log. Locks of dead processes are released by the system.
//
// The folder holds:
//
//	routerd.lock   the lock; its content is the holder's process id
//	jetstream/     the server's streams and buckets
//
// Routing and control calls use [Server.Connect], which stays inside the
// process (about 20 us a request). Readers of long streams use
// [Server.ConnectBulk], which goes through loopback TCP where the server
// listens: twice as fast for bulk.
//
// A Server outlives the server object behind it: after [Server.Restart] the
// connections find the new object by themselves, since they ask the Server
// (as nats.InProcessConnProvider) at every reconnect.
//
// [Server.Close] stops in order: connections are drained, the server is shut
// down, its goroutines are waited for, the lock is released.
//
// # Clusters
//
// [Dial] connects to a cluster of the user's instead. Its errors say what to do
// and never show a password or token of a URL; [Redact] is the form of a URL
// that may be shown.
package embedded
