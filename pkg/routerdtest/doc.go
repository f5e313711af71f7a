// Package routerdtest is for the tests of programs that use routerd: one call
// gives them a NATS server, a router and mock workers, all real but for the
// engines behind the workers, and all stopped when the test ends.
//
// Workers compute prompts in simulated engines with a block cache, publish their
// KV events to the log, and answer over HTTP as vLLM does; so a frontend under
// test can route a request, send it to the endpoint that it was given, and see
// the next request with the same prefix routed to the same worker.
package routerdtest
