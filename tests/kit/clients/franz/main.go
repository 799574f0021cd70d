// A franz-go consumer of partition t-0 from its start, see tests/kit/clients/truncation.py for what it prints; with more
// arguments a producer, see tests/compat/test_broken_appends.py, or with "copy" a group that copies a topic in
// transactions, see tests/kit/clients/copiers.py.
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

// copyRecords copies `count` records in transactions, some of which are aborted.
func copyRecords(address, source, target, group string, count int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address),
		kgo.TransactionalID(group),
		kgo.TransactionTimeout(10*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DefaultProduceTopic(target),
	)
	if err != nil {
		panic(err)
	}
	for number, copied := 0, 0; copied < count; number++ {
		fetches := session.PollRecords(ctx, 20)
		if err := fetches.Err(); err != nil {
			panic(err)
		}
		if err := session.Begin(); err != nil {
			panic(err)
		}
		first := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Key: record.Key, Value: record.Value}, first.Promise())
		})
		commit := first.Err() == nil && number%4 != 2
		committed, err := session.End(ctx, kgo.TransactionEndTry(commit))
		if err != nil {
			panic(err)
		}
		if committed {
			copied += fetches.NumRecords()
		}
	}
	session.Close()
}

func main() {
	if os.Args[1] == "copy" {
		count, _ := strconv.Atoi(os.Args[6])
		copyRecords(os.Args[2], os.Args[3], os.Args[4], os.Args[5], count)
		return
	}
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
