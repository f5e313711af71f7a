package routerdtest_test

import (
	"context"
	"fmt"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/routerdtest"
)

// A test of a frontend would call routerdtest.Start(t, …), which stops everything
// when the test ends. An Example has no testing.TB, so this one uses New and Close.
func Example() {
	ctx := context.Background()
	system, err := routerdtest.New(routerdtest.Options{Pool: "llama", Workers: 4, BlockSize: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer system.Close()

	prompt := make([]uint32, 100)
	for i := range prompt {
		prompt[i] = uint32(i)
	}
	for range 2 {
		// Ask where the prompt should go,
		reply, err := system.Client().Route(ctx, system.Pool(), &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: prompt}})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d of %d tokens cached, %s\n", reply.CachedTokens, reply.ISLTokens, reply.Reason)
		// send it there, here without HTTP,
		if _, err := system.Worker(reply.Worker).Serve(ctx, routerdtest.Request{TokenIDs: prompt, MaxTokens: 8}); err != nil {
			fmt.Println(err)
			return
		}
		// and say that it has ended.
		if err := system.Client().ReportComplete(ctx, system.Pool(), &protocol.CompleteReport{Lease: reply.Lease}); err != nil {
			fmt.Println(err)
			return
		}
		if err := system.Settle(ctx); err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// 0 of 100 tokens cached, tie
	// 96 of 100 tokens cached, lowest_cost
}
