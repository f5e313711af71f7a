//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package embedded

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// tryLock refuses: without a lock two processes could write to one log.
func tryLock(*os.File) error {
	return fmt.Errorf("files cannot be locked on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
