package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// journal holds what the server has acknowledged.
type journal struct {
	lock sync.Mutex
	// By resource version, what was written there.
	acknowledged map[string]string
	// Requests whose outcome is unknown: the connection broke, the server was away.
	unknown int
	done    sync.WaitGroup
}

func (j *journal) note(what, version string, err error) {
	j.lock.Lock()
	defer j.lock.Unlock()
	if err != nil {
		j.unknown++
		return
	}
	j.acknowledged[version] = what
}

func (j *journal) wait() { j.done.Wait() }

func (j *journal) String() string {
	j.lock.Lock()
	defer j.lock.Unlock()
	return fmt.Sprintf("%d writes acknowledged, %d failed", len(j.acknowledged), j.unknown)
}

// write lets so many writers create, change and delete objects until the context ends.
func write(ctx context.Context, clients []kubernetes.Interface, writers int, pause time.Duration) *journal {
	log := &journal{acknowledged: map[string]string{}}
	for number := range writers {
		log.done.Add(1)
		go func() {
			defer log.done.Done()
			client := clients[number%len(clients)]
			for life := 0; ctx.Err() == nil; life++ {
				live(ctx, client, log, fmt.Sprintf("w%d-%d", number, life), pause)
			}
		}()
	}
	return log
}

// live takes one object from its creation over some changes to its end.
func live(ctx context.Context, client kubernetes.Interface, log *journal, name string, pause time.Duration) {
	maps := client.CoreV1().ConfigMaps(namespace)
	wait := func() { time.Sleep(pause/2 + rand.N(pause)) }
	// Requests are not cut off by the end of the run: what was begun is brought to its answer.
	request := context.WithoutCancel(ctx)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"step": "0"}}
	created, err := maps.Create(request, object, metav1.CreateOptions{})
	log.note("created "+name, version(created), err)
	wait()
	if err != nil {
		return
	}
	for step := 1; step <= 3+rand.N(8) && ctx.Err() == nil; step++ {
		created.Data["step"] = fmt.Sprint(step)
		changed, err := maps.Update(request, created, metav1.UpdateOptions{})
		log.note(fmt.Sprintf("changed %s to %d", name, step), version(changed), err)
		wait()
		if err != nil {
			break
		}
		created = changed
	}
	// Some stay, so that lists have something to say.
	if rand.N(10) > 0 {
		// The answer to a deletion does not say at which version; views are compared for it.
		if err := maps.Delete(request, name, metav1.DeleteOptions{}); err != nil {
			log.note("", "", err)
		}
		wait()
	}
}

func version(object *corev1.ConfigMap) string {
	if object == nil {
		return ""
	}
	return object.ResourceVersion
}
