//! Supervises the etcd process of this node and renews its certificate. etcd keeps running when
//! this process ends.

use std::time::Duration;

use base::{Backoff, Chain, Stop};
use quorum::{EtcdProcess, InitialCluster};
use tracing::{error, info, warn};

use super::standby::{Standing, standing};
use super::{EndRequest, ProcessEnd};
use crate::data_dir::Layout;

/// Certificates live for months.
const CERTIFICATE_CHECK: Duration = Duration::from_secs(3600);
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(15);

pub(in crate::command) struct EtcdSupervisor {
    pub(in crate::command) layout: Layout,
    pub(in crate::command) process: EtcdProcess,
    pub(in crate::command) end: EndRequest,
}

impl EtcdSupervisor {
    pub(in crate::command) async fn run(self, mut stop: Stop) {
        tokio::select! {
            () = self.keep_running() => {}
            () = self.keep_certificate() => {}
            () = stop.requested() => {}
        }
    }

    /// Returns only when this node is not a member any more.
    pub(in crate::command) async fn keep_running(&self) {
        let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
        loop {
            match self.process.ensure(&InitialCluster::Known) {
                Ok(running) => {
                    running.ended().await;
                    warn!(pid = running.pid, "etcd process exited");
                }
                Err(failure) => error!(error = %Chain(&failure), "cannot start etcd"),
            }
            if let Some(end) = self.end_of_membership().await {
                return self.end.request(end);
            }
            tokio::time::sleep(backoff.delay()).await;
            info!("restarting etcd");
        }
    }

    /// Why this node is no longer a member; nothing if it is one, or if no server knows.
    async fn end_of_membership(&self) -> Option<ProcessEnd> {
        if !super::is_removed(&self.layout, &self.process).await {
            return None;
        }
        let record = super::record(&self.layout).ok().flatten()?;
        match standing(&self.layout, &record).await {
            Standing::Removed => {
                error!("this node was removed from etcd; stop Sheaf here and remove its data");
                Some(ProcessEnd::Removed)
            }
            Standing::Replaced => {
                warn!("another node votes in place of this one");
                Some(ProcessEnd::StandBy)
            }
            Standing::Demoted => {
                warn!("this node was made a worker");
                Some(ProcessEnd::Demoted)
            }
            Standing::Unknown => None,
        }
    }

    /// etcd reads a new certificate by itself; our own connections are made anew by a restart.
    async fn keep_certificate(&self) {
        let certificate = &self.process.spec().tls.certificate;
        let read = || std::fs::read(certificate).ok();
        let first = read();
        loop {
            tokio::time::sleep(CERTIFICATE_CHECK).await;
            let renewed = super::record(&self.layout).and_then(|record| match record {
                Some(record) => super::etcd_process(&self.layout, &record).map(drop),
                None => Ok(()),
            });
            if let Err(failure) = renewed {
                error!(error = %Chain(&*failure), "cannot renew the certificate of etcd");
            } else if read() != first {
                info!("certificate of etcd renewed; restarting");
                self.end.request(ProcessEnd::Restart);
            }
        }
    }
}
