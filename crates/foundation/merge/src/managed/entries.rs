//! `metadata.managedFields`: reading, writing, the identity of its entries and
//! the limit on their number.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::path::GoQuoted;
use crate::set::{Set, SetError};

/// More entries of updates than this are merged, oldest first.
const MOST_UPDATERS: usize = 10;

/// The manager of merged entries.
const OLD_UPDATES: &str = "ancient-changes";

/// Why `managedFields` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("expected a list of entries")]
    NotAList,
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    NoVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {kind} in managed fields entry {at}", kind = GoQuoted(.kind))]
    FieldsType { kind: String, at: usize },
    #[error("error decoding set: {0}")]
    Fields(SetError),
}

/// Whether `managedFields` can be read.
pub fn validate_managed_fields(entries: &Value) -> Result<(), EntryError> {
    Managed::read(Cow::Borrowed(entries)).map(|_| ())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The fields that one manager owns.
#[derive(Debug, Clone)]
pub(super) struct ManagerEntry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    pub(super) set: Set,
    /// Where the list that was read has the written form of `set`, as long as the set has
    /// not changed.
    raw: Option<usize>,
}

impl ManagerEntry {
    pub(super) fn new(
        manager: &str,
        operation: Operation,
        api_version: &str,
        subresource: &str,
        set: Set,
    ) -> Self {
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
            time: None,
            set,
            raw: None,
        }
    }

    /// Takes over the written form of an entry with the same set.
    pub(super) fn written_as(&mut self, other: &Self) {
        if self.set == other.set {
            self.raw = other.raw;
        }
    }

    /// Changes the set; `change` says whether it did.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Set) -> bool) {
        if change(&mut self.set) {
            self.raw = None;
        }
    }

    /// Whether both speak for the same manager. Appliers are the same in every version.
    pub(super) fn same_manager(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The identity as text, by which upstream sorts managers.
    pub(super) fn identifier(&self) -> String {
        let mut fields = Vec::with_capacity(4);
        let mut push = |name: &str, value: &str| {
            if !value.is_empty() {
                fields.push(format!("\"{name}\":{}", Value::from(value)));
            }
        };
        push("manager", &self.manager);
        push("operation", self.operation.text());
        if self.operation == Operation::Update {
            push("apiVersion", &self.api_version);
        }
        push("subresource", &self.subresource);
        format!("{{{}}}", fields.join(","))
    }

    fn read(entry: &Value, at: usize) -> Result<Self, EntryError> {
        let Value::Object(entry) = entry else { return Err(EntryError::NotAList) };
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("");
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(EntryError::Operation),
        };
        if text("apiVersion").is_empty() {
            return Err(EntryError::NoVersion);
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(EntryError::NoFieldsType(at)),
            kind => return Err(EntryError::FieldsType { kind: kind.to_owned(), at }),
        }
        let fields = entry.get("fieldsV1").unwrap_or(&Value::Null);
        let set = Set::from_fields_v1(fields).map_err(EntryError::Fields)?;
        let mut read =
            Self::new(text("manager"), operation, text("apiVersion"), text("subresource"), set);
        read.time = Some(text("time").to_owned()).filter(|time| !time.is_empty());
        read.raw = Some(at);
        Ok(read)
    }

    fn write(self, source: &mut Cow<'_, Value>) -> Value {
        let raw = self.raw.map(|at| match source {
            Cow::Owned(entries) => entries[at]["fieldsV1"].take(),
            Cow::Borrowed(entries) => entries[at]["fieldsV1"].clone(),
        });
        let mut entry = Map::new();
        let mut put = |name: &str, value: Value| entry.insert(name.to_owned(), value);
        put("apiVersion", self.api_version.into());
        put("fieldsType", "FieldsV1".into());
        put("fieldsV1", raw.unwrap_or_else(|| self.set.to_fields_v1()));
        if !self.manager.is_empty() {
            put("manager", self.manager.into());
        }
        put("operation", self.operation.text().into());
        if !self.subresource.is_empty() {
            put("subresource", self.subresource.into());
        }
        if let Some(time) = self.time {
            put("time", time.into());
        }
        Value::Object(entry)
    }
}

/// All managers of an object, each once.
#[derive(Debug, Clone, Default)]
pub(super) struct Managed<'a> {
    pub(super) entries: Vec<ManagerEntry>,
    /// The list as it was read.
    source: Cow<'a, Value>,
}

impl<'a> Managed<'a> {
    pub(super) fn read(source: Cow<'a, Value>) -> Result<Self, EntryError> {
        let list: &[Value] = match &*source {
            Value::Null => &[],
            Value::Array(entries) => entries,
            _ => return Err(EntryError::NotAList),
        };
        let mut entries: Vec<ManagerEntry> = Vec::with_capacity(list.len() + 1);
        for (at, entry) in list.iter().enumerate() {
            put(&mut entries, ManagerEntry::read(entry, at)?);
        }
        Ok(Self { entries, source })
    }

    /// Encodes all entries again: those of another writer may be valid without being in the
    /// canonical form.
    pub(super) fn rewritten(mut self) -> Self {
        self.entries.iter_mut().for_each(|entry| entry.raw = None);
        self
    }

    /// Adds an entry in place of the one with the same identity.
    pub(super) fn put(&mut self, entry: ManagerEntry) {
        put(&mut self.entries, entry);
    }

    pub(super) fn find(&self, wanted: &ManagerEntry) -> Option<&ManagerEntry> {
        self.entries.iter().find(|entry| entry.same_manager(wanted))
    }

    pub(super) fn drop_empty(&mut self) {
        self.entries.retain(|entry| !entry.set.is_empty());
    }

    /// Adds what an update changed to what its manager owned before.
    pub(super) fn add_update(&mut self, mut own: ManagerEntry) {
        if let Some(before) = self.find(&own) {
            own.set = std::mem::take(&mut own.set).union(&before.set);
        }
        self.put(own);
    }

    /// Merges the oldest updaters of each version until few enough are left.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<usize> = (0..self.entries.len())
            .filter(|&at| self.entries[at].operation == Operation::Update)
            .collect();
        let mut count = updaters.len();
        if count <= MOST_UPDATERS {
            return;
        }
        updaters.sort_by_cached_key(|&at| {
            let entry = &self.entries[at];
            (seconds(entry.time.as_deref()), entry.identifier())
        });
        let oldest: Vec<ManagerEntry> =
            updaters.iter().map(|&at| self.entries[at].clone()).collect();
        let mut first: Vec<&ManagerEntry> = Vec::new();
        for entry in &oldest {
            if count <= MOST_UPDATERS {
                break;
            }
            match first.iter().find(|other| other.api_version == entry.api_version) {
                None => first.push(entry),
                Some(first) => {
                    self.merge_old(first, entry);
                    count -= 1;
                }
            }
        }
    }

    /// Moves `entry` into the bucket of its version, which begins as `first`.
    fn merge_old(&mut self, first: &ManagerEntry, entry: &ManagerEntry) {
        let version = &entry.api_version;
        let mut bucket = ManagerEntry::new(OLD_UPDATES, Operation::Update, version, "", Set::new());
        match self.find(&bucket) {
            Some(existing) => bucket.set = existing.set.clone(),
            None => {
                bucket.set = first.set.clone();
                self.entries.retain(|other| !other.same_manager(first));
            }
        }
        bucket.set = std::mem::take(&mut bucket.set).union(&entry.set);
        // The later of the two times, since entries come oldest first.
        bucket.time.clone_from(&entry.time);
        self.put(bucket.clone());
        if !entry.same_manager(&bucket) {
            self.entries.retain(|other| !other.same_manager(entry));
        }
    }

    /// The list as written in the object, sorted.
    pub(super) fn write(mut self) -> Vec<Value> {
        self.entries.sort_by(|left, right| {
            let time = |entry: &ManagerEntry| seconds(entry.time.as_deref());
            left.operation
                .cmp(&right.operation)
                .then_with(|| time(left).cmp(&time(right)))
                .then_with(|| left.manager.cmp(&right.manager))
                .then_with(|| left.api_version.cmp(&right.api_version))
                .then_with(|| left.subresource.cmp(&right.subresource))
        });
        let mut source = self.source;
        self.entries.into_iter().map(|entry| entry.write(&mut source)).collect()
    }
}

fn put(entries: &mut Vec<ManagerEntry>, entry: ManagerEntry) {
    match entries.iter_mut().find(|other| other.same_manager(&entry)) {
        Some(other) => *other = entry,
        None => entries.push(entry),
    }
}

/// Seconds since 1970; no time, or one that cannot be read, is the beginning.
fn seconds(time: Option<&str>) -> i64 {
    time.and_then(|time| time.parse::<jiff::Timestamp>().ok()).map_or(0, |time| time.as_second())
}
