package subscriber

// MessagesRead is Stats().Messages, without waiting for any rank.
func (s *Subscriber) MessagesRead() uint64 { return s.stats.read.Load() }
