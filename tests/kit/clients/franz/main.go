// A franz-go consumer of partition t-0 from its start, see tests/kit/clients/truncation.py for what it prints; with more
// arguments a producer, see tests/compat/test_broken_appends.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produce sends `count` records to partition t-0, whose values are their numbers, with keys of `size` bytes.
func produce(address string, count, size int) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.DefaultProduceTopic("t"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(16384),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		// Each fault costs a refresh of the metadata and a retry, by default of seconds.
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	)
	if err != nil {
		panic(err)
	}
	key := make([]byte, size)
	for number := 0; number < count; number++ {
		record := &kgo.Record{Key: key, Value: []byte(strconv.Itoa(number))}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				panic(err)
			}
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		panic(err)
	}
	client.Close()
}

func main() {
	if len(os.Args) > 2 {
		count, _ := strconv.Atoi(os.Args[2])
		size, _ := strconv.Atoi(os.Args[3])
		produce(os.Args[1], count, size)
		return
	}
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
