// kfake as a process of its own: one broker, everything written to disk, ended by SIGTERM.
//
// Prints "kfake ready on HOST:PORT" when it accepts. It is a point of comparison only.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	dir := flag.String("dir", "", "data directory")
	port := flag.Int("port", 0, "port on 127.0.0.1, 0 = a free one")
	flag.Parse()
	if *dir == "" {
		fmt.Fprintln(os.Stderr, "kfake: -dir is required")
		os.Exit(2)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(*port), kfake.DataDir(*dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
	fmt.Printf("kfake ready on %s\n", cluster.ListenAddrs()[0])
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	cluster.Close()
}
