//! Groups `storage.k8s.io` and `storagemigration.k8s.io`.

pub(crate) mod attachment;
pub(crate) mod attributes_class;
pub(crate) mod class;
pub(crate) mod csi_capacity;
pub(crate) mod csi_driver;
pub(crate) mod csi_node;
pub(crate) mod migration;
