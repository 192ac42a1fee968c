//! Images of disks: each gets a backing image, which a node fills, and a storage class whose
//! volumes begin as a copy of it. The node's status of the data is copied to the image, as
//! Harvester does it.
//!
//! `hci::admit` checks the users of an image before its deletion. Backing images that people
//! created themselves get a disk as well.

mod disk;
mod plan;
mod record;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use hci::longhorn::{FINALIZER, NAMESPACE};
use kube::Client;
use serde_json::{Value, json};

use self::disk::NoDisk;
use self::plan::{ImageInput, ImagePlan};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::longhorn::record::BackingImageFields;
use crate::longhorn::{BACKING_IMAGES, LONGHORN_VOLUMES, STORAGE_NODES, handle};
use crate::object::{self, is_deleting, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::resource::{CLAIMS, CLASSES, Objects, Resource, is_refused};

pub(crate) const IMAGES: Resource =
    Resource::new("harvesterhci.io", "v1beta1", "virtualmachineimages");

const SOURCE: &str = "harvester-vm-image-controller";
const API: &str = "harvesterhci.io/v1beta1";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ImageKey {
    Image(ObjectKey),
    Backing(Arc<str>),
}

/// Images, their backing images, and disks that those wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    /// Images by their backing images, and backing images that wait for a disk by [`nodes`];
    /// their images, which say what they wait for, by [`places`].
    pub(crate) waiting: Dependents,
}

/// Represents all nodes.
fn nodes() -> ObjectKey {
    ObjectKey::new(NAMESPACE, "")
}

/// The same, for images.
fn places() -> ObjectKey {
    ObjectKey::new("", "")
}

impl EventMapper for Stored {
    type Key = ImageKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ImageKey> {
        let ObjectChange::Object { kind, namespace, name, .. } = touch else { return Vec::new() };
        let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        if IMAGES.is(kind) {
            vec![ImageKey::Image(key)]
        } else if BACKING_IMAGES.is(kind) {
            let images = self.waiting.of(&key).into_iter().map(ImageKey::Image);
            images.chain([ImageKey::Backing(Arc::clone(name))]).collect()
        } else if STORAGE_NODES.is(kind) {
            let waiting = self.waiting.of(&nodes()).into_iter();
            let backings = waiting.map(|backing| ImageKey::Backing(backing.name));
            backings.chain(self.waiting.of(&places()).into_iter().map(ImageKey::Image)).collect()
        } else if LONGHORN_VOLUMES.is(kind) {
            self.waiting.of(&key).into_iter().map(ImageKey::Image).collect()
        } else if CLASSES.is(kind) {
            self.waiting.of(&ObjectKey::new("", name)).into_iter().map(ImageKey::Image).collect()
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct ImageReconciler {
    objects: Objects,
    waiting: Dependents,
}

impl Reconciler for ImageReconciler {
    type Key = ImageKey;

    async fn reconcile(&self, work: &ImageKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            ImageKey::Image(key) => self.image(key).await,
            ImageKey::Backing(name) => self.backing(name).await,
        }
    }
}

impl ImageReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting }
    }

    async fn image(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(IMAGES, &key.namespace, &key.name).await;
        let Some(image) = found.doing("get the image")? else {
            self.waiting.forget(key);
            return Ok(ReconcileResult::Done);
        };
        let (backing, class) = (plan::backing_name(&image), plan::class_name(&image));
        let mut needs =
            BTreeSet::from([ObjectKey::new(NAMESPACE, &backing), ObjectKey::new("", &class)]);
        let is_export = record::spec(&image).source_type == "export-from-volume";
        let copy = if is_export { plan::copy_name(&image) } else { String::new() };
        needs.extend(is_export.then(|| ObjectKey::new(NAMESPACE, &copy)));
        self.waiting.set(key, needs.clone());
        let copy = self.objects.get(LONGHORN_VOLUMES, NAMESPACE, &copy).await;
        let copy = copy.doing("get the copy of a volume")?;
        let backing = self.objects.get(BACKING_IMAGES, NAMESPACE, &backing).await;
        let backing = backing.doing("get the backing image")?;
        let class = self.objects.get(CLASSES, "", &class).await.doing("get the storage class")?;
        if is_deleting(&image) {
            self.drop_copy(copy.as_ref()).await?;
            return self.remove(&image, backing.as_ref(), class.as_ref()).await;
        }
        if !object::has_finalizer(&image, plan::HELD) {
            self.hold(&image).await?;
            return Ok(ReconcileResult::Done);
        }
        let source = if is_export { self.exported(&image).await? } else { None };
        let origin = self.origin(&image).await?;
        let (backing, class, copy) = (backing.as_ref(), class.as_ref(), copy.as_ref());
        let (source, origin) = (source.as_ref(), origin.as_ref());
        let obstacle = match backing.filter(|backing| !has_disk(backing)) {
            Some(backing) => {
                needs.insert(places());
                self.waiting.set(key, needs);
                self.disk(backing).await?.err().map(|error| error.to_string())
            }
            None => None,
        };
        let obstacle = obstacle.as_deref();
        let seen = ImageInput { image: &image, backing, class, source, copy, origin, obstacle };
        let plan = plan::plan(seen, clock::now());
        if let Some(wanted) = &plan.copy {
            self.make(LONGHORN_VOLUMES, NAMESPACE, wanted, "copy the volume").await?;
        }
        if plan.delete_copy {
            self.drop_copy(copy).await?;
        }
        self.carry_out(&image, backing, plan).await
    }

    async fn carry_out(
        &self,
        image: &Value,
        backing: Option<&Value>,
        plan: ImagePlan,
    ) -> Result<ReconcileResult, ReconcileError> {
        if let Some(class) = &plan.class {
            self.make(CLASSES, "", class, "create the storage class of an image").await?;
        }
        if let Some(backing) = &plan.backing {
            self.make(BACKING_IMAGES, NAMESPACE, backing, "create the backing image").await?;
        }
        if let Some(backing) = backing.filter(|_| plan.delete_backing) {
            self.delete(BACKING_IMAGES, NAMESPACE, backing, "delete the backing image").await?;
        }
        if let Some(patch) = &plan.patch {
            let (namespace, name) = (object::namespace(image), object::name(image));
            match self.objects.merge(IMAGES, namespace, name, patch).await {
                Err(failure) if is_refused(&failure, 404) => return Ok(ReconcileResult::Done),
                written => drop(written.doing("say how an image is")?),
            }
            self.update_status(image, patch).await;
        }
        let wait = plan.again.map(|again| again.duration_since(clock::now()));
        Ok(match wait {
            None => ReconcileResult::Done,
            Some(wait) => {
                let wait = Duration::try_from(wait).unwrap_or_default();
                ReconcileResult::Again(wait.max(Duration::from_millis(100)))
            }
        })
    }

    /// The volume behind the claim that an image is exported from.
    async fn exported(&self, image: &Value) -> Result<Option<Value>, ReconcileError> {
        let spec = record::spec(image);
        let claim = self.objects.get(CLAIMS, spec.pvc_namespace, spec.pvc_name).await;
        let claim = claim.doing("get the claim")?;
        let volume = self.objects.volume_of(claim.as_ref()).await.doing("get the volume")?;
        let own = volume.as_ref().and_then(handle).unwrap_or_default();
        self.objects
            .get(LONGHORN_VOLUMES, NAMESPACE, own)
            .await
            .doing("get the volume behind a claim")
    }

    /// The image that another one is a clone of.
    async fn origin(&self, image: &Value) -> Result<Option<Value>, ReconcileError> {
        let spec = record::spec(image);
        if spec.source_type != "clone" {
            return Ok(None);
        }
        let wish = spec.security_parameters;
        let (space, name) = (wish.source_image_namespace, wish.source_image_name);
        self.objects.get(IMAGES, space, name).await.doing("get the source image")
    }

    async fn drop_copy(&self, copy: Option<&Value>) -> Result<(), ReconcileError> {
        let Some(copy) = copy else { return Ok(()) };
        self.delete(LONGHORN_VOLUMES, NAMESPACE, copy, "delete the copy of a volume").await
    }

    async fn make(
        &self,
        resource: Resource,
        namespace: &str,
        object: &Value,
        doing: &'static str,
    ) -> Result<(), ReconcileError> {
        match self.objects.create(resource, namespace, object).await {
            Err(failure) if is_refused(&failure, 409) => Ok(()),
            made => made.map(drop).doing(doing),
        }
    }

    async fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        object: &Value,
        doing: &'static str,
    ) -> Result<(), ReconcileError> {
        if is_deleting(object) {
            return Ok(());
        }
        let (name, uid) = (object::name(object), object::uid(object));
        self.objects.delete(resource, namespace, name, uid).await.doing(doing)
    }

    async fn hold(&self, image: &Value) -> Result<(), ReconcileError> {
        let mut finalizers = object::finalizers_without(image, &[]);
        finalizers.push(json!(plan::HELD));
        self.finalizers(IMAGES, image, finalizers).await
    }

    /// The class is removed first: no volume may be made of data that is being removed.
    async fn remove(
        &self,
        image: &Value,
        backing: Option<&Value>,
        class: Option<&Value>,
    ) -> Result<ReconcileResult, ReconcileError> {
        if !object::has_finalizer(image, plan::HELD) {
            return Ok(ReconcileResult::Done);
        }
        if let Some(class) = class {
            self.delete(CLASSES, "", class, "delete the storage class of an image").await?;
        }
        if let Some(backing) = backing {
            self.delete(BACKING_IMAGES, NAMESPACE, backing, "delete the backing image").await?;
            return Ok(ReconcileResult::Done);
        }
        let left = object::finalizers_without(image, &[plan::HELD]);
        self.finalizers(IMAGES, image, left).await?;
        Ok(ReconcileResult::Done)
    }

    async fn finalizers(
        &self,
        resource: Resource,
        object: &Value,
        finalizers: Vec<Value>,
    ) -> Result<(), ReconcileError> {
        let mut meta = object::version(object);
        meta.insert("finalizers".into(), finalizers.into());
        let patch = json!({"metadata": meta});
        let (namespace, name) = (object::namespace(object), object::name(object));
        match self.objects.merge(resource, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(()),
            written => written.map(drop).doing("change finalizers"),
        }
    }

    /// Finds a disk for data that has none, and releases what no disk has.
    async fn backing(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(BACKING_IMAGES, NAMESPACE, name).await;
        let key = ObjectKey::new(NAMESPACE, name);
        let Some(backing) = found.doing("get the backing image")? else {
            self.waiting.forget(&key);
            return Ok(ReconcileResult::Done);
        };
        self.waiting.set(&key, BTreeSet::from([nodes()]));
        if is_deleting(&backing) {
            let all = self.objects.list(STORAGE_NODES, NAMESPACE, "").await.doing("list nodes")?;
            if object::has_finalizer(&backing, FINALIZER) && !disk::is_somewhere(&backing, &all) {
                let left = object::finalizers_without(&backing, &[FINALIZER]);
                self.finalizers(BACKING_IMAGES, &backing, left).await?;
            }
            return Ok(ReconcileResult::Done);
        }
        if has_disk(&backing) {
            self.waiting.forget(&key);
            return Ok(ReconcileResult::Done);
        }
        let Ok(uuid) = self.disk(&backing).await? else { return Ok(ReconcileResult::Done) };
        let mut meta = object::version(&backing);
        // Made by hand: its files must go before it does.
        if !object::has_finalizer(&backing, FINALIZER) {
            let mut finalizers = object::finalizers_without(&backing, &[]);
            finalizers.push(json!(FINALIZER));
            meta.insert("finalizers".into(), finalizers.into());
        }
        let place = json!({uuid: {"dataEngine": "v1", "evictionRequested": false}});
        let patch = json!({"metadata": meta, "spec": {"diskFileSpecMap": place}});
        let written = self.objects.merge(BACKING_IMAGES, NAMESPACE, name, &patch).await;
        written.map(|_| ReconcileResult::Done).doing("choose a disk for an image")
    }

    /// The disk that data is to be on.
    async fn disk(&self, backing: &Value) -> Result<Result<String, NoDisk>, ReconcileError> {
        let origin = read::<BackingImageFields<'_>>(backing).spec.source_parameters.origin;
        let origin = self.objects.get(BACKING_IMAGES, NAMESPACE, origin).await;
        let origin = origin.doing("get the backing image of the source")?;
        let all = self.objects.list(STORAGE_NODES, NAMESPACE, "").await.doing("list nodes")?;
        Ok(disk::choose(backing, origin.as_ref(), &all))
    }

    /// Records events: the end of an import, and each attempt that failed.
    async fn update_status(&self, image: &Value, patch: &Value) {
        let failed = record::status(patch).failed;
        let has = |kind: &str| crate::condition::is(patch, kind, "True");
        let (tone, reason, message) =
            if has("Imported") && !crate::condition::is(image, "Imported", "True") {
                (EventType::Normal, "Imported", "the image is imported".to_owned())
            } else if failed.is_some() {
                let failure = crate::record::condition::condition(patch, "RetryLimitExceeded");
                let message = failure.map_or("", |failure| failure.message).to_owned();
                (EventType::Warning, "ImportFailed", message)
            } else {
                return;
            };
        let regarding = Regarding {
            api_version: API,
            kind: "VirtualMachineImage",
            namespace: object::namespace(image),
            name: object::name(image),
            uid: object::uid(image),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }
}

/// Whether it was said where the data is to be.
fn has_disk(backing: &Value) -> bool {
    !read::<BackingImageFields<'_>>(backing).spec.disk_file_spec_map.is_empty()
}

#[cfg(test)]
mod tests;
