package lease

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/routerd/routerd/pkg/protocol"
)

// nobook is a ledger that costs nothing.
type nobook struct{}

func (nobook) FirstToken(protocol.LeaseID)   {}
func (nobook) Release(protocol.LeaseID) bool { return true }
func (nobook) Restore(protocol.Lease) bool   { return true }

func benchManager(b *testing.B, live int) (*Manager, []protocol.Lease) {
	m, err := New(Config{Ledger: nobook{}, MaxLeases: 1 << 21})
	if err != nil {
		b.Fatal(err)
	}
	leases := make([]protocol.Lease, live)
	for i := range leases {
		leases[i] = newLease(uuid.NewString(), 1, fmt.Sprint("w", i%64))
		m.admit(leases[i])
	}
	return m, leases
}

func atSizes(b *testing.B, f func(b *testing.B, live int)) {
	for _, live := range []int{1, 1_000, 100_000} {
		b.Run(fmt.Sprint("live=", live), func(b *testing.B) {
			b.ReportAllocs()
			f(b, live)
		})
	}
}

// BenchmarkAdmit is Begin and Admitted; each lease is completed outside the clock.
func BenchmarkAdmit(b *testing.B) {
	atSizes(b, func(b *testing.B, live int) {
		m, _ := benchManager(b, live-1)
		observer := m.Observer()
		const batch = 1024
		leases := make([]protocol.Lease, batch)
		for i := range leases {
			leases[i] = newLease("", 1, fmt.Sprint("w", i%64))
		}
		b.ResetTimer()
		for n := 0; n < b.N; {
			b.StopTimer()
			for i := range leases {
				leases[i].ID, leases[i].RequestID = uuid.New(), uuid.NewString()
			}
			size := min(batch, b.N-n)
			b.StartTimer()
			for _, l := range leases[:size] {
				if m.Begin(l.RequestID, l.Attempt) != nil {
					b.Fatal("refused")
				}
				observer.Admitted(l)
			}
			b.StopTimer()
			for _, l := range leases[:size] {
				m.complete(l)
			}
			n += size
			b.StartTimer()
		}
	})
}

// BenchmarkProgress is a report from its body's fields on, lease string included.
func BenchmarkProgress(b *testing.B) {
	atSizes(b, func(b *testing.B, live int) {
		m, leases := benchManager(b, live)
		reports := make([]protocol.ProgressReport, live)
		for i := range reports {
			reports[i] = protocol.ProgressReport{Lease: leases[i].String(), RequestID: leases[i].RequestID, Attempt: 1}
			m.Progress(&reports[i])
		}
		b.ResetTimer()
		for n := 0; b.Loop(); n++ {
			m.Progress(&reports[n%live])
		}
	})
}

// BenchmarkComplete ends leases that live; they are admitted outside the clock.
func BenchmarkComplete(b *testing.B) {
	atSizes(b, func(b *testing.B, live int) {
		m, _ := benchManager(b, live-1)
		const batch = 1024
		leases := make([]protocol.Lease, batch)
		reports := make([]protocol.CompleteReport, batch)
		b.ResetTimer()
		for n := 0; n < b.N; {
			b.StopTimer()
			for i := range leases {
				leases[i] = newLease(uuid.NewString(), 1, fmt.Sprint("w", i%64))
				reports[i] = protocol.CompleteReport{Lease: leases[i].String(), RequestID: leases[i].RequestID, Attempt: 1}
				m.admit(leases[i])
			}
			size := min(batch, b.N-n)
			b.StartTimer()
			for i := range reports[:size] {
				if _, known := m.Complete(&reports[i]); !known {
					b.Fatal("unknown")
				}
			}
			b.StopTimer()
			for i := range leases[size:] {
				m.complete(leases[size+i])
			}
			n += size
			b.StartTimer()
		}
	})
}

// BenchmarkReaperPass looks at a million leases that report; half of the
// iterations find them touched.
func BenchmarkReaperPass(b *testing.B) {
	const live = 1_000_000
	m, leases := benchManager(b, live)
	for i := range leases {
		m.touch(leases[i].ID)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.reap(&m.reporting, m.cfg.Interval)
		b.StopTimer()
		for _, r := range m.leases {
			r.clock.touch()
		}
		b.StartTimer()
	}
	if m.Len() != live {
		b.Fatalf("%d leases live", m.Len())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/live, "ns/lease")
}
