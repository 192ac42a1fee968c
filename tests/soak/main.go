// Soak drives a server with the clients that controllers are made of, for the time that it is
// given: informers in JSON and protobuf, a watch that is taken up again wherever it broke off, and
// candidates for a leadership that changes hands. It ends with 1 if a write that the server
// acknowledged was not reported exactly once, if an informer ends up with another view than a
// list, or if two led at once.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const namespace = "soak"

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "how to reach the server")
	lasts := flag.Duration("for", time.Hour, "how long to go on")
	writers := flag.Int("writers", 4, "how many write at a time")
	pause := flag.Duration("pause", 100*time.Millisecond, "between two writes of one writer")
	flag.Parse()
	if err := run(*kubeconfig, *lasts, *writers, *pause); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, lasts time.Duration, writers int, pause time.Duration) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	inJSON, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	binary := rest.CopyConfig(config)
	binary.ContentType = "application/vnd.kubernetes.protobuf"
	inProtobuf, err := kubernetes.NewForConfig(binary)
	if err != nil {
		return err
	}
	ctx := context.Background()
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := inJSON.CoreV1().Namespaces().Create(ctx, own, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("the server must be a fresh one: %w", err)
	}

	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	seen, err := follow(watching, inJSON)
	if err != nil {
		return err
	}
	views := []*view{
		startView(watching, "informer in JSON", inJSON),
		startView(watching, "informer in protobuf", inProtobuf),
	}
	writing, stopWriting := context.WithTimeout(ctx, lasts)
	defer stopWriting()
	office := contend(writing, inProtobuf, 3)
	log := write(writing, []kubernetes.Interface{inJSON, inProtobuf}, writers, pause)

	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for begun := time.Now(); writing.Err() == nil; {
		select {
		case <-writing.Done():
		case <-tick.C:
			fmt.Printf("%s: %s; %s; %s\n", time.Since(begun).Round(time.Second), log, seen, office)
		}
	}
	log.wait()
	if err := settle(ctx, inJSON, log, seen, views); err != nil {
		return err
	}
	fmt.Printf("done: %s; %s; %s\n", log, seen, office)
	return office.verdict()
}
