package embedded

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// holdEnv makes the test binary lock a store until its stdin ends, as the second
// process of TestSecondProcess.
const holdEnv = "EMBEDDED_TEST_HOLD_STORE"

func TestMain(m *testing.M) {
	if store := os.Getenv(holdEnv); store != "" {
		os.Exit(holdStore(store))
	}
	goleak.VerifyTestMain(m)
}

func holdStore(store string) int {
	lock, err := lockStore(store)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("locked")
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := lock.release(); err != nil {
		return 1
	}
	return 0
}
