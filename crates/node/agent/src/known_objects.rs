//! The objects of one kind as a watch reports them, each reduced to a record.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Records of objects that were listed; unreadable ones are left out.
pub(crate) fn read_all<Object, Record>(
    objects: &[Value],
    read: fn(Object) -> Option<Record>,
) -> BTreeMap<ObjectKey, Record>
where
    Object: DeserializeOwned + kube::Resource<DynamicType = ()>,
{
    let records = objects.iter().filter_map(|object| {
        let object: Object = serde_json::from_value(object.clone()).ok()?;
        let meta = object.meta();
        let key = ObjectKey {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        };
        Some((key, read(object)?))
    });
    records.collect()
}

/// The objects of one kind, in the part that matters to its user.
pub(crate) struct KnownObjects<Record> {
    objects: Option<BTreeMap<ObjectKey, Record>>,
    /// The list that is being read.
    listed: BTreeMap<ObjectKey, Record>,
}

impl<Record> Default for KnownObjects<Record> {
    fn default() -> Self {
        Self { objects: None, listed: BTreeMap::new() }
    }
}

impl<Record> KnownObjects<Record> {
    /// None before the first list has been read.
    pub(crate) fn all(&self) -> Option<&BTreeMap<ObjectKey, Record>> {
        self.objects.as_ref()
    }

    /// Applies an event; an object for which `read` returns nothing is left out.
    pub(crate) fn take<Object: kube::Resource>(
        &mut self,
        event: Event<Object>,
        read: fn(Object) -> Option<Record>,
    ) {
        let key = |object: &Object| ObjectKey {
            namespace: object.meta().namespace.clone().unwrap_or_default(),
            name: object.meta().name.clone().unwrap_or_default(),
        };
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                let key = key(&object);
                self.listed.extend(read(object).map(|record| (key, record)));
            }
            Event::InitDone => self.objects = Some(std::mem::take(&mut self.listed)),
            Event::Apply(object) => {
                let key = key(&object);
                let objects = self.objects.get_or_insert_default();
                match read(object) {
                    Some(record) => objects.insert(key, record),
                    None => objects.remove(&key),
                };
            }
            Event::Delete(object) => {
                self.objects.get_or_insert_default().remove(&key(&object));
            }
        }
    }
}
