//! A node that joined as a management node, until it is one. It runs as a worker meanwhile: it takes
//! the keys of the cluster over, becomes a member of etcd, and restarts as a server.

use std::time::Duration;

use anyhow::Result;
use base::{Backoff, Chain, Stop};
use quorum::find_etcd;
use tracing::{info, warn};

use super::keys::ManagementKeys;
use super::mover::warn_if_outdated;
use super::{EndRequest, MemberJoin, ProcessEnd};
use crate::cli::ServerArgs;

const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

pub(in crate::command) struct Candidate {
    pub(in crate::command) member: MemberJoin,
    pub(in crate::command) args: ServerArgs,
    /// Pin of the cluster's CA.
    pub(in crate::command) pin: String,
    pub(in crate::command) end: EndRequest,
}

impl Candidate {
    pub(in crate::command) async fn run(self, mut stop: Stop) {
        tokio::select! {
            () = self.become_voter() => {}
            () = stop.requested() => {}
        }
    }

    async fn become_voter(&self) {
        self.member.resume();
        let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
        let mut is_reported = false;
        while let Err(failure) = self.prepare().await {
            if !is_reported {
                warn!(error = %Chain(&*failure), "cannot become a management node yet");
            }
            is_reported = true;
            tokio::time::sleep(backoff.delay()).await;
            self.member.resume();
            // It has the keys by then: nothing of etcd is started without them.
            if self.member.is_promoted().await {
                info!("this node votes in etcd; restarting as a server");
                return self.end.request(ProcessEnd::Restart);
            }
        }
        info!("this node has the keys of the cluster; waiting for etcd");
        self.member.until_voter().await;
        info!("restarting as a server");
        self.end.request(ProcessEnd::Restart);
    }

    /// Takes the keys over, and checks whether etcd can be started here.
    async fn prepare(&self) -> Result<()> {
        warn_if_outdated(find_etcd()?);
        let keys = ManagementKeys::fetch(&self.member.client).await?;
        keys.store(&self.member.layout, &self.pin, &self.args)
    }
}
