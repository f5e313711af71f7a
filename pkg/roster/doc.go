// Package roster keeps a router's view of who is there: the workers that
// registered in the bucket `<prefix>-workers`, the operator's drains in
// `<prefix>-drains`, and the routers in `<prefix>-routers`, in which this router
// lists itself.
//
// # Parts
//
//	reader    one per bucket: opens it (or makes it), reads it whole, follows it,
//	          and begins anew after every loss of contact
//	table     what the records mean: which registrations are accepted, which are
//	          refused, which life (epoch) each is in, who has expired; no I/O, no
//	          clock
//	presence  the same, much smaller, for routers
//	contact   a clock that counts only time in which a refresh could have come
//	listing   this router's own key
//	Watcher   joins them; its one goroutine applies every record in order and
//	          calls the Handler
//
// # Lives
//
// A put without an epoch begins a life of its (worker, rank), and its revision
// is the life's epoch; a put with an epoch belongs to that life; epoch 0 says
// that the publisher uses none. The latest put decides, except that a put of an
// older life than the newest known of that rank is counted and ignored. A put
// whose epoch the bucket has not reached is refused. Three lives of under 5 s in
// a row are warned of: somebody refreshes by repeating the first put.
//
// # Conflicts
//
// The first accepted registration of a pool sets its block size. Of what one
// read of the bucket brings, the oldest life counts as the first, so that routers
// that start at different times agree. A registration of another block size is
// kept aside, as are those that name another key than theirs or cannot be
// decoded; [Watcher.Refused] lists them. A worker that changes its own block
// size leaves. When the last worker of the accepted size leaves, the oldest
// refused registration sets the size and every one of that size is accepted. A
// value that cannot be decoded, or names another key, is no refresh, and does
// not end the registration that it replaced before its time.
//
// # Leaving
//
// A worker leaves when it deletes its key, or when no refresh came for the
// bucket's time to live (TTL). Time without contact, and two TTL after it, do not
// count, and neither do the server's own expiry marks in that time: after an
// outage the server may expire every key before one worker was able to refresh.
// So a worker that died during an outage is gone within three TTL of its end. A
// process that did not run for half a TTL treats that as an outage too. An empty
// read, a failed one, or a bucket that is gone removes nobody. The first read
// after the start is not the end of an outage.
//
// # Buckets
//
// File storage, history 1, delete marks. Revisions of `<prefix>-workers` begin at
// the microseconds since 1970, so that they grow even if the bucket is lost and
// made again, and with them the epochs. A bucket that exists with other settings
// is reported in the log and used as it is; its own TTL counts.
//
// # Bounds
//
//	65,536 accepted ranks, 16,384 of one pool   more: refused as `limit`
//	4,096 pools                                 more: counted, not kept
//	1,024 refused registrations of one pool     more: counted, not listed
//	16,384 drains, 1,024 routers                more: ignored, with a warning
//	64 KiB a value                              more: undecodable
//
// Counters of a pool are kept while it has a registration.
package roster
