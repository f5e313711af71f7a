package protocol

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEscape(t *testing.T) {
	tests := []struct{ name, token string }{
		{"llama-3-8b", "llama-3-8b"},
		{"a_B-9", "a_B-9"},
		{"meta/Llama 3.1", "meta=2FLlama=203=2E1"},
		{"=", "=3D"},
		{"*.>", "=2A=2E=3E"},
		{"é", "=C3=A9"},
	}
	for _, test := range tests {
		if got := Escape(test.name); got != test.token {
			t.Errorf("Escape(%q) = %q, want %q", test.name, got, test.token)
		}
		if got, err := Unescape(test.token); err != nil || got != test.name {
			t.Errorf("Unescape(%q) = %q, %v", test.token, got, err)
		}
	}
}

func TestUnescapeRefuses(t *testing.T) {
	for _, token := range []string{
		"", "a.b", "a b", "=2f", "=4", "=", "a=", "=41", "=GG", "=+1", "=C3", "é", strings.Repeat("a", MaxNameBytes+1),
		strings.Repeat("=2E", MaxEscapedBytes/3+1), "*", ">",
	} {
		if name, err := Unescape(token); err == nil {
			t.Errorf("Unescape(%q) = %q", token, name)
		}
	}
}

func TestCheckName(t *testing.T) {
	good := []string{"a", strings.Repeat("a", MaxNameBytes), strings.Repeat(".", MaxEscapedBytes/3), "模型"}
	bad := []string{"", strings.Repeat("a", MaxNameBytes+1), strings.Repeat(".", MaxEscapedBytes/3+1), "\xff"}
	for _, name := range good {
		if err := CheckName(name); err != nil {
			t.Errorf("CheckName(%q): %v", name, err)
		}
	}
	for _, name := range bad {
		if CheckName(name) == nil {
			t.Errorf("CheckName(%q) found no fault", name)
		}
	}
}

// Every name has one token, every token at most one name, and no token breaks a subject.
func TestEscapeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		token := Escape(name)
		if strings.ContainsAny(token, ".*> \t") {
			t.Fatalf("token %q of %q is no subject token", token, name)
		}
		got, err := Unescape(token)
		if (err == nil) != (CheckName(name) == nil) {
			t.Fatalf("Unescape(%q): %v, but CheckName: %v", token, err, CheckName(name))
		}
		if err == nil && got != name {
			t.Fatalf("Unescape(%q) = %q, want %q", token, got, name)
		}
		other := rapid.StringMatching(`[=0-9A-Fa-z]{1,12}`).Draw(t, "token")
		if name, err := Unescape(other); err == nil && Escape(name) != other {
			t.Fatalf("Unescape(%q) = %q, whose token is %q", other, name, Escape(name))
		}
	})
}

func TestNames(t *testing.T) {
	w := Worker{"w/1", 3}
	var n Names
	custom, err := NewNames("prod1")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ got, want string }{
		{n.Stream("a.b"), "KVR_a=2Eb"},
		{n.Events("p", w), "kvr.p.events.w=2F1.3"},
		{n.PoolEvents("p"), "kvr.p.events.>"},
		{n.Query("p", w), "kvr.p.query.w=2F1.3"},
		{n.Call("p", VerbRoute), "kvr.p.route"},
		{n.Lease("p", VerbProgress), "kvr.p.lease.progress"},
		{n.EveryPool(VerbStatus), "kvr.*.status"},
		{n.WorkersBucket(), "kvr-workers"},
		{n.RoutersBucket(), "kvr-routers"},
		{n.DrainsBucket(), "kvr-drains"},
		{WorkerKey("p.q", w), "p=2Eq.w=2F1.3"},
		{DrainKey("p", "w", nil), "p.w"},
		{DrainKey("p", "w", &w.Rank), "p.w.3"},
		{custom.Stream("p"), "PROD1_p"},
		{custom.Events("p", w), "prod1.p.events.w=2F1.3"},
		{custom.WorkersBucket(), "prod1-workers"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
	for _, prefix := range []string{"", "A", "a-b", "a.b", strings.Repeat("a", 33)} {
		if _, err := NewNames(prefix); err == nil {
			t.Errorf("prefix %q is accepted", prefix)
		}
	}
}

func TestParseNames(t *testing.T) {
	var n Names
	w := Worker{"w.1", 65535}
	if got, err := n.ParseEvents(n.Events("p", w)); err != nil || got != w {
		t.Errorf("events subject gives %v, %v", got, err)
	}
	if pool, err := n.ParsePool(n.Call("p q", VerbRoute)); err != nil || pool != "p q" {
		t.Errorf("call subject gives %q, %v", pool, err)
	}
	if pool, ok := n.StreamPool(n.Stream("p q")); !ok || pool != "p q" {
		t.Errorf("stream gives %q, %t", pool, ok)
	}
	if pool, got, err := ParseWorkerKey(WorkerKey("p.q", w)); err != nil || pool != "p.q" || got != w {
		t.Errorf("worker key gives %q, %v, %v", pool, got, err)
	}
	if pool, worker, rank, err := ParseDrainKey(DrainKey("p", "w.1", nil)); err != nil || pool != "p" || worker != "w.1" || rank != nil {
		t.Errorf("drain key gives %q, %q, %v, %v", pool, worker, rank, err)
	}
	if _, _, rank, err := ParseDrainKey(DrainKey("p", "w", &w.Rank)); err != nil || rank == nil || *rank != w.Rank {
		t.Errorf("drain key of a rank gives %v, %v", rank, err)
	}
	for _, subject := range []string{"kvr.p.events.w", "kvr.p.events.w.1.2", "x.p.events.w.1", "kvr.p.query.w.1", "kvr.p.events.w.65536", "kvr.p.events.w.01", "kvr.p.events.w.-1", "kvr.p.events.=.1", ""} {
		if got, err := n.ParseEvents(subject); err == nil {
			t.Errorf("ParseEvents(%q) = %v", subject, got)
		}
	}
	for _, key := range []string{"", "p", "p.w", "p.w.x", "p.w.1.2", "=.w.1"} {
		if _, _, err := ParseWorkerKey(key); err == nil {
			t.Errorf("worker key %q is accepted", key)
		}
	}
	for _, key := range []string{"", "p", "p.w.x", "p.w.1.2", "=.w", "p.=41"} {
		if _, _, _, err := ParseDrainKey(key); err == nil {
			t.Errorf("drain key %q is accepted", key)
		}
	}
}
