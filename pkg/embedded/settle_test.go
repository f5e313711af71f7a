package embedded

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

// Streams that are being made when the server closes leave nothing behind.
func TestCloseWhileStreamsAreMade(t *testing.T) {
	for round := range 20 {
		before := goleak.IgnoreCurrent()
		s, err := Start(Config{Store: t.TempDir(), Listen: ListenNone})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := s.Connect()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			body := fmt.Sprintf(`{"name":"S%d","subjects":["s%d"],"storage":"file","retention":"limits","num_replicas":1,"max_age":1000000000}`, i, i)
			if err := conn.Publish(fmt.Sprintf("$JS.API.STREAM.CREATE.S%d", i), []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		if err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := goleak.Find(before); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
