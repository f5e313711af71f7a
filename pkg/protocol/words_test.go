package protocol

import (
	"net/http"
	"slices"
	"testing"
)

func TestTiers(t *testing.T) {
	for tier, name := range map[Tier]string{TierDevice: "device", TierHost: "host", TierDisk: "disk", TierExternal: "external"} {
		if got, ok := ParseTier(name); !ok || got != tier || tier.String() != name {
			t.Errorf("%q is %v, and %d is %q", name, got, tier, tier)
		}
	}
	if got, ok := ParseTier(""); !ok || got != TierDevice {
		t.Errorf("no tier is %v", got)
	}
	for _, name := range []string{"Device", "gpu", "host_pinned", "moon"} {
		if got, ok := ParseTier(name); ok {
			t.Errorf("%q is %v", name, got)
		}
	}
	if got := Tier(Tiers).String(); got != "tier(4)" {
		t.Errorf("a tier that does not exist is %q", got)
	}
}

func TestWorkerOrder(t *testing.T) {
	want := []Worker{{"a", 0}, {"a", 2}, {"a", 10}, {"b", 1}}
	got := []Worker{want[2], want[3], want[1], want[0]}
	slices.SortFunc(got, Worker.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("sorted %v", got)
	}
	if want[1].String() != "a/2" {
		t.Errorf("written %q", want[1])
	}
}

func TestOverlapBlocks(t *testing.T) {
	if got := (Overlap{Device: 1, Host: 2, Disk: 3, External: 4}).Blocks(); got != 10 {
		t.Errorf("%d blocks", got)
	}
}

func TestDetectEncoding(t *testing.T) {
	for body, want := range map[string]Encoding{
		"{}": EncodingJSON, "[1]": EncodingJSON, "": EncodingJSON, "\x80": EncodingMsgpack, " {}": EncodingMsgpack, "hello": EncodingMsgpack,
	} {
		if got := DetectEncoding([]byte(body)); got != want {
			t.Errorf("%q is taken for %v", body, got)
		}
	}
}

func TestErrorCodes(t *testing.T) {
	for code, want := range map[Code]struct {
		number    int
		retryable bool
	}{
		CodeInvalidRequest:   {http.StatusBadRequest, false},
		CodeInvalidName:      {http.StatusBadRequest, false},
		CodePinnedNotAllowed: {http.StatusBadRequest, false},
		CodeUnknownPool:      {http.StatusNotFound, true},
		CodeDuplicateRequest: {http.StatusConflict, false},
		CodeQueueRejected:    {529, true},
		CodeOverloaded:       {529, true},
		CodePinnedOverloaded: {529, true},
		CodeNoWorkers:        {http.StatusServiceUnavailable, true},
		CodeNotReady:         {http.StatusServiceUnavailable, true},
		CodeShuttingDown:     {http.StatusServiceUnavailable, true},
		CodeInternal:         {http.StatusInternalServerError, false},
		"something else":     {http.StatusInternalServerError, false},
	} {
		if code.Number() != want.number || code.Retryable() != want.retryable {
			t.Errorf("%s is %d, retryable %t", code, code.Number(), code.Retryable())
		}
		if e := Errorf(code, "%d", 1); e.Retryable != want.retryable || e.Error() != string(code)+": 1" {
			t.Errorf("%s makes %+v", code, e)
		}
	}
	if got := RefusedSnapshot.Error(); got != "refused: snapshot" {
		t.Errorf("a refusal says %q", got)
	}
}
