package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecondProcess runs this test binary again as the holder of a store.
func TestSecondProcess(t *testing.T) {
	store := t.TempDir()
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holdEnv+"="+store)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Process.Kill()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "locked\n" {
		t.Fatalf("holder says %q, %v", line, err)
	}

	_, err = Start(Config{Store: store, Listen: ListenNone})
	var locked *LockedError
	if !errors.As(err, &locked) || !errors.Is(err, ErrStoreLocked) {
		t.Fatalf("got %v, want a LockedError", err)
	}
	if locked.PID != holder.Process.Pid || locked.Store != store {
		t.Errorf("got %+v, want the holder's pid %d", locked, holder.Process.Pid)
	}
	want := fmt.Sprintf("store %s is in use by process %d: stop it or choose another folder with --store", store, holder.Process.Pid)
	if err.Error() != want {
		t.Errorf("got  %q\nwant %q", err, want)
	}

	stdin.Close()
	if err := holder.Wait(); err != nil {
		t.Fatalf("holder: %v", err)
	}
	start(t, Config{Store: store, Listen: ListenNone})
}

// TestKilledHolder shows that a dead process leaves no lock behind.
func TestKilledHolder(t *testing.T) {
	store := t.TempDir()
	if err := os.WriteFile(filepath.Join(store, lockName), []byte("4194304\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, Config{Store: store, Listen: ListenNone})
	text, err := os.ReadFile(filepath.Join(store, lockName))
	if err != nil || strings.TrimSpace(string(text)) != fmt.Sprint(os.Getpid()) {
		t.Errorf("the lock holds %q, %v, want this process", text, err)
	}
}

func TestSameProcess(t *testing.T) {
	store := t.TempDir()
	start(t, Config{Store: store, Listen: ListenNone})
	if _, err := Start(Config{Store: store, Listen: ListenNone}); !errors.Is(err, ErrStoreLocked) {
		t.Fatalf("got %v, want ErrStoreLocked", err)
	}
}

func TestUnwritableStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(file, "store")
	_, err := Start(Config{Store: store})
	want := "cannot write store " + store + ": not a directory: allow writing there or choose another folder with --store"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestLockedErrorWithoutPID(t *testing.T) {
	err := &LockedError{Store: "/x"}
	if want := "store /x is in use by another process: stop it or choose another folder with --store"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}
