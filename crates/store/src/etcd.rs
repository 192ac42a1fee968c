//! The engine for several nodes: an etcd cluster.

use std::marker::PhantomData;
use std::sync::Arc;

use base::Tasks;

use crate::config::{EtcdConfig, Retention};
use crate::mirror::Mirror;
use crate::revision::Revision;
use crate::shape::Shape;
use crate::store::{FenceError, Unhealthy};
use crate::write::{Write, WriteError, Written};

pub(crate) struct Etcd<S: Shape>(PhantomData<S>);

/// Why a store in etcd cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the etcd engine is not built yet")]
    Missing,
}

impl<S: Shape> Etcd<S> {
    pub(crate) async fn open(
        _: EtcdConfig,
        _: Retention,
        _: S,
        _: &Tasks,
    ) -> Result<(Arc<Mirror<S>>, Self), OpenError> {
        Err(OpenError::Missing)
    }
    pub(crate) async fn write(&self, _: Write) -> Result<Written<S>, WriteError> {
        Err(WriteError::Closed)
    }
    pub(crate) async fn fence(&self) -> Result<Revision, FenceError> {
        Ok(Revision::ZERO)
    }
    pub(crate) fn health(&self) -> Result<(), Unhealthy> {
        Err(Unhealthy::Closed)
    }
}
