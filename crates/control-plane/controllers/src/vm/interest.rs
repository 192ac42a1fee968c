//! Which virtual machines a change concerns.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::instancetype;
use crate::key::{Dependents, ObjectKey};
use crate::object::{list, name, namespace};
use crate::reconcile::{EventMapper, ObjectChange};
use crate::resource::{CLAIMS, DATA_VOLUMES, VMIS, VMS};
use crate::vmi::any_claim_name;

/// Every virtual machine, again when its instance or its disks change.
#[derive(Debug, Clone, Default)]
pub(crate) struct VmMapper(pub(crate) Dependents);

impl EventMapper for VmMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, .. } => {
                let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
                if VMS.is(kind) || VMIS.is(kind) {
                    vec![key]
                } else if CLAIMS.is(kind)
                    || DATA_VOLUMES.is(kind)
                    || &*kind.group == instancetype::GROUP
                {
                    self.0.of(&key)
                } else {
                    Vec::new()
                }
            }
            ObjectChange::Missed(kind) if CLAIMS.is(kind) || DATA_VOLUMES.is(kind) => self.0.all(),
            ObjectChange::Missed(_) => Vec::new(),
        }
    }
}

/// Names of objects that the machine depends on.
pub(super) fn needs(vm: &Value) -> BTreeSet<ObjectKey> {
    let home = namespace(vm);
    let volumes = list(vm, "/spec/template/spec/volumes").iter().filter_map(any_claim_name);
    let templates = list(vm, "/spec/dataVolumeTemplates").iter().map(name);
    let mut needs: BTreeSet<ObjectKey> =
        volumes.chain(templates).map(|name| ObjectKey::new(home, name)).collect();
    for name in instancetype::names(vm) {
        needs.extend([ObjectKey::new(home, name), ObjectKey::new("", name)]);
    }
    needs
}
