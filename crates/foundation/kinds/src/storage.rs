//! Groups `storage.k8s.io` and `storagemigration.k8s.io`.

pub(crate) mod attachment;
pub(crate) mod attributes_class;
pub(crate) mod class;
pub(crate) mod csi_capacity;
pub(crate) mod csi_driver;
pub(crate) mod csi_node;
pub(crate) mod migration;

use schema::{FieldError, Path};

use crate::{check, syntax};

/// Judges the name of a CSI driver; capitals are let through.
pub(crate) fn validate_driver_name(name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    check::each(syntax::subdomain(&name.to_lowercase()), name, path, errors);
}
