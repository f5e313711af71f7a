package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// lockName is the lock's file inside the store.
const lockName = "routerd.lock"

// ErrStoreLocked says that another process (or another Server of this one) uses
// the store. The error that wraps it is a *LockedError.
var ErrStoreLocked = errors.New("store is in use")

// errHeld is tryLock's answer when somebody else holds the lock.
var errHeld = errors.New("lock is held")

// LockedError says who holds a store.
type LockedError struct {
	Store string
	PID   int // 0 if the holder has not yet written it
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("store %s is in use by %s: stop it or choose another folder with --store", e.Store, holder)
}

// Unwrap is ErrStoreLocked.
func (e *LockedError) Unwrap() error { return ErrStoreLocked }

// storeLock holds a store for this process.
type storeLock struct{ file *os.File }

// lockStore makes the folder if need be and locks it. The file stays when the
// lock is released: removing it would let two processes lock two files of the
// same name.
func lockStore(store string) (*storeLock, error) {
	if err := os.MkdirAll(store, 0o700); err != nil {
		return nil, unwritable(store, err)
	}
	file, err := os.OpenFile(filepath.Join(store, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unwritable(store, err)
	}
	switch err := tryLock(file); {
	case errors.Is(err, errHeld):
		defer file.Close()
		return nil, &LockedError{Store: store, PID: readPID(file)}
	case err != nil:
		file.Close()
		return nil, fmt.Errorf("cannot lock store %s: %w: choose a folder on a local disk with --store", store, cause(err))
	}
	if err := writePID(file); err != nil {
		file.Close()
		return nil, unwritable(store, err)
	}
	return &storeLock{file}, nil
}

// release ends the lock; the system does it too when the process dies.
func (l *storeLock) release() error {
	return errors.Join(l.file.Truncate(0), l.file.Close())
}

func unwritable(store string, err error) error {
	return fmt.Errorf("cannot write store %s: %w: allow writing there or choose another folder with --store", store, cause(err))
}

func writePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// readPID is the holder's process id, 0 if it cannot be read.
func readPID(file *os.File) int {
	text := make([]byte, 20)
	n, err := file.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
