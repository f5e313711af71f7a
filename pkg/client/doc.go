// Package client is a frontend's side of routerd: it asks the routers of a pool
// where to send a request, and reports how the request goes, over NATS.
//
//	reply, err := c.Route(ctx, "llama-3-8b", &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens}})
//	// send the request to reply.Endpoint, then, while it streams:
//	c.Progress("llama-3-8b", &protocol.ProgressReport{Lease: reply.Lease, RequestID: reply.RequestID, Attempt: reply.Attempt})
//	// and at its end, however it ended:
//	c.Complete("llama-3-8b", &protocol.CompleteReport{Lease: reply.Lease, RequestID: reply.RequestID, Attempt: reply.Attempt})
//
// Report progress at the first token and then every few seconds: a request that
// is silent for long is taken for dead and no longer charged to its worker. A
// call that ends without its reply withdraws its request, so that it charges
// nothing.
//
// Failures that a router reports are *protocol.Error; a pool without a router is
// a *NoRouterError. Other errors are those of the context or the connection.
//
// A prompt too long for one NATS message goes as block hashes, which take an
// eighth of the space of its tokens or less. The pool's block size is asked for
// once where the configuration does not give it.
//
// A Client starts no goroutine and needs no closing: it ends with its
// connection, which stays the caller's.
package client
