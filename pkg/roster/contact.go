package roster

import "time"

// minStall is the least pause of this process that counts as an outage; ticks
// come more often.
const minStall = time.Second

// contact is a clock that counts only time in which a refresh could have come:
// not the time without contact to a bucket, and not the two TTL after it, in
// which publishers find their way back. Ages are differences of counted.
type contact struct {
	ttl     time.Duration
	counted time.Duration
	until   time.Time // up to when counted is right
	resume  time.Time // nothing before it counts
	present bool      // the bucket is being followed
	before  bool      // it has been once
}

// advance counts up to now. It is called at least once per tick, so a large step
// means that this process did not run, which is as good as no contact: what came
// meanwhile is still unread.
func (c *contact) advance(now time.Time) {
	switch step := now.Sub(c.until); {
	case !c.present:
	case step > max(c.ttl/2, minStall):
		c.resume = now.Add(2 * c.ttl)
	case now.After(c.resume):
		from := c.until
		if c.resume.After(from) {
			from = c.resume
		}
		c.counted += now.Sub(from)
	}
	c.until = now
}

// lost says that the bucket is no longer followed.
func (c *contact) lost(now time.Time) {
	c.advance(now)
	c.present = false
}

// regained says that the bucket, with the time to live given, has been read whole
// and is followed from now on.
func (c *contact) regained(now time.Time, ttl time.Duration) {
	c.advance(now)
	c.ttl = ttl
	if c.before {
		c.resume = now.Add(2 * ttl)
	}
	c.present, c.before = true, true
}

// steady says whether time counts now.
func (c *contact) steady() bool { return c.present && !c.until.Before(c.resume) }

// expired says whether what was last seen then has outlived the TTL.
func (c *contact) expired(seen time.Duration) bool { return c.counted-seen >= c.ttl }
