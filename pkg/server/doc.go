// Package server builds everything and owns it: the connection to NATS or the
// embedded server, the roster watch, one router per pool, the intake of calls,
// and the admin HTTP listener. Command routerd is flags and signals around it;
// a program that embeds the router uses it directly.
//
// Cancellation is a tree of scopes:
//
//	process
//	├─ intake          calls and reports from NATS; closed first
//	└─ core            roster watch, admin listener, pool manager; closed last
//	   └─ pool <name>  one per pool: its log reader and its lease reaper
//
// Pools come and go with their workers. A pool's scope hangs under core, so that
// its index, scheduler and leases go on working while accepted calls drain.
// Closing one pool leaves every other untouched.
package server
