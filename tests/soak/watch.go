package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// events is what one watch received, over all its connections.
type events struct {
	lock    sync.Mutex
	last    uint64
	counts  map[string]int
	faults  []string
	deleted int
}

func (e *events) String() string {
	e.lock.Lock()
	defer e.lock.Unlock()
	return fmt.Sprintf("%d events, %d of them deletions", len(e.counts), e.deleted)
}

// follow watches from now on, and takes the watch up where it was whenever it breaks off.
func follow(ctx context.Context, client kubernetes.Interface) (*events, error) {
	maps := client.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		// Short watches, so that an hour has many joints.
		seconds := int64(45)
		options.TimeoutSeconds = &seconds
		return maps.Watch(ctx, options)
	}}
	retrying, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, source)
	if err != nil {
		return nil, err
	}
	seen := &events{counts: map[string]int{}}
	go func() {
		for event := range retrying.ResultChan() {
			seen.take(event)
		}
	}()
	return seen, nil
}

func (e *events) take(event watch.Event) {
	e.lock.Lock()
	defer e.lock.Unlock()
	object, err := meta.Accessor(event.Object)
	if err != nil || event.Type == watch.Error {
		e.faults = append(e.faults, fmt.Sprintf("the watch received %v", event))
		return
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil || version <= e.last {
		e.faults = append(e.faults, fmt.Sprintf("version %s came after %d", object.GetResourceVersion(), e.last))
	}
	e.last = version
	if event.Type == watch.Deleted {
		e.deleted++
	}
	e.counts[object.GetResourceVersion()]++
}

// view is what an informer believes.
type view struct {
	name   string
	lister listers.ConfigMapLister
}

func startView(ctx context.Context, name string, client kubernetes.Interface) *view {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	maps := factory.Core().V1().ConfigMaps()
	lister := maps.Lister()
	maps.Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return &view{name, lister}
}

// differs says where the view is another than the list.
func (v *view) differs(list *corev1.ConfigMapList) string {
	known, err := v.lister.List(labels.Everything())
	if err != nil {
		return err.Error()
	}
	versions := map[string]string{}
	for _, object := range known {
		versions[object.Name] = object.ResourceVersion
	}
	for _, object := range list.Items {
		if versions[object.Name] != object.ResourceVersion {
			return fmt.Sprintf("%s is at %s and believed at %q", object.Name, object.ResourceVersion, versions[object.Name])
		}
	}
	if len(known) != len(list.Items) {
		return fmt.Sprintf("%d objects are believed and %d are there", len(known), len(list.Items))
	}
	return ""
}

// settle gives all watches a while to receive the last event, and judges.
func settle(ctx context.Context, client kubernetes.Interface, log *journal, seen *events, views []*view) error {
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var fault error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		if fault = judge(list, log, seen, views); fault == nil {
			break
		}
	}
	return fault
}

func judge(list *corev1.ConfigMapList, log *journal, seen *events, views []*view) error {
	seen.lock.Lock()
	defer seen.lock.Unlock()
	log.lock.Lock()
	defer log.lock.Unlock()
	if len(seen.faults) > 0 {
		return fmt.Errorf("%d faults of the watch, first: %s", len(seen.faults), seen.faults[0])
	}
	if len(log.acknowledged) == 0 {
		return fmt.Errorf("nothing was written")
	}
	for version, what := range log.acknowledged {
		if seen.counts[version] != 1 {
			return fmt.Errorf("%s at version %s was received %d times", what, version, seen.counts[version])
		}
	}
	for _, view := range views {
		if difference := view.differs(list); difference != "" {
			return fmt.Errorf("%s: %s", view.name, difference)
		}
	}
	return nil
}
