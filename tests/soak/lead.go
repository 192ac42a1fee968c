package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// office is a leadership and who has held it.
type office struct {
	lock    sync.Mutex
	holder  string
	terms   int
	overlap string
}

func (o *office) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return fmt.Sprintf("%d terms of leadership", o.terms)
}

func (o *office) verdict() error {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.overlap != "" {
		return fmt.Errorf("two led at once: %s", o.overlap)
	}
	if o.terms < 2 {
		return fmt.Errorf("leadership changed hands %d times only", o.terms)
	}
	return nil
}

func (o *office) begin(who string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.holder != "" {
		o.overlap = o.holder + " and " + who
	}
	o.holder = who
	o.terms++
}

func (o *office) end(who string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.holder == who {
		o.holder = ""
	}
}

// contend lets candidates stand for one lease. Who leads steps down after a while.
func contend(ctx context.Context, client kubernetes.Interface, candidates int) *office {
	result := &office{}
	for number := range candidates {
		name := fmt.Sprintf("candidate-%d", number)
		go func() {
			for ctx.Err() == nil {
				stand(ctx, client, name, result)
			}
		}()
	}
	return result
}

func stand(ctx context.Context, client kubernetes.Interface, name string, result *office) {
	term, resign := context.WithCancel(ctx)
	defer resign()
	lease := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "soak", Namespace: namespace},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}
	leaderelection.RunOrDie(term, leaderelection.LeaderElectionConfig{
		Lock:            lease,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				result.begin(name)
				time.AfterFunc(time.Duration(5+rand.N(20))*time.Second, func() {
					// Out of office before the lease is given up, as whoever leads must be.
					result.end(name)
					resign()
				})
			},
			OnStoppedLeading: func() { result.end(name) },
		},
	})
}
