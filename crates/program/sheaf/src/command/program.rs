//! Programs of this node: the file that was installed, newer ones that an upgrade brought, and the
//! choice between them.
//!
//! An upgrade never replaces the installed file. The program that is to run is noted in
//! `program.json`, and a server that is started hands over to it. A new program first runs on
//! trial under the old one, which takes over again unless the new one proves itself.

mod fetch;
pub(super) mod follower;
mod health;
mod launch;
mod preflight;
mod state;
mod store;
mod trial;

use anyhow::Result;
use kube::Client;

pub(super) use fetch::node_client;
pub(super) use follower::ProgramFollower;
pub(super) use launch::{begin_trial, hand_over};
pub(super) use preflight::run as preflight;
pub(super) use store::{ProgramStore, StoreError, check_file, digest_of};
pub(super) use trial::run as trial;

use health::{HealthCheck, TrialLink};

/// On trial: reports the health of this process, and resolves when it is to end. Otherwise never.
pub(super) fn on_trial(client: Client, node: String) -> Result<impl Future<Output = ()>> {
    let link = TrialLink::take()?;
    Ok(async move {
        match link {
            Some(link) => link.report(HealthCheck { client, node }).await,
            None => std::future::pending().await,
        }
    })
}
