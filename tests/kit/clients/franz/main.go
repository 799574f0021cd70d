// A franz-go consumer of partition t-0 from its start, see tests/kit/clients/truncation.py for what it prints.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(0)}}),
	)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		}
		cancel()
	}()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			var loss *kgo.ErrDataLoss
			if errors.As(err, &loss) {
				fmt.Printf("truncated %d\n", loss.ResetTo)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Printf("read %d %s\n", record.Offset, record.Value)
		})
	}
	client.Close()
}
