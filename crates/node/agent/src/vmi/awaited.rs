//! Objects that a machine waits for: each is watched for as long as the machine waits, and
//! no object is watched when no machine does.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::task::Poll;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream as _, StreamExt as _};
use kube::api::{ApiResource, DynamicObject};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;

/// An object that is not there, or not ready.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Object {
    pub(crate) kind: AwaitedKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Kinds that machines wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AwaitedKind {
    Secret,
    ConfigMap,
    ServiceAccount,
    Claim,
    DataVolume,
}

impl AwaitedKind {
    /// The kind that errors call by this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "secret" => Some(Self::Secret),
            "config map" => Some(Self::ConfigMap),
            "service account" => Some(Self::ServiceAccount),
            "PVC" => Some(Self::Claim),
            "DataVolume" => Some(Self::DataVolume),
            _ => None,
        }
    }

    fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Secret => ("", "v1", "Secret", "secrets"),
            Self::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            Self::ServiceAccount => ("", "v1", "ServiceAccount", "serviceaccounts"),
            Self::Claim => ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::DataVolume => ("cdi.kubevirt.io", "v1beta1", "DataVolume", "datavolumes"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

/// The objects that one machine waits for now.
#[derive(Default)]
pub(super) struct AwaitedObjects(BTreeMap<Object, Changes>);

/// Never locked; it lets those who hold the machine be shared between threads.
type Changes = Mutex<BoxStream<'static, ()>>;

impl AwaitedObjects {
    /// Waits for these from now on, and for no others.
    pub(super) fn set(&mut self, client: &Client, objects: BTreeSet<Object>) {
        self.0.retain(|object, _| objects.contains(object));
        for object in objects {
            let changes = |object: &Object| Mutex::new(follow(client.clone(), object));
            self.0.entry(object).or_insert_with_key(changes);
        }
    }

    /// Resolves when one of them may have changed since it was last read; never if there are
    /// none. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        std::future::poll_fn(|context| {
            for changes in self.0.values_mut() {
                if let Poll::Ready(Some(())) = Pin::new(changes.get_mut()).poll_next(context) {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
    }
}

/// An item for each change of an object. The first one is sent when the watch has begun: a change
/// between the last read and then would be missed otherwise.
fn follow(client: Client, object: &Object) -> BoxStream<'static, ()> {
    let resource = object.kind.resource();
    let api = Api::<PartialObjectMeta<DynamicObject>>::namespaced_with(
        client,
        &object.namespace,
        &resource,
    );
    let config = watcher::Config::default().fields(&format!("metadata.name={}", object.name));
    watcher::watcher(api, config)
        .default_backoff()
        .flat_map(|event| {
            let changed = matches!(event, Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone));
            stream::iter(changed.then_some(()))
        })
        .boxed()
}
