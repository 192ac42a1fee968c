//! The way of a node into an etcd that others run: one step at a time, until it votes. The steps are
//! decided by `quorum::join_step`; here they are carried out.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use base::{Backoff, Chain, clock};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use quorum::{
    EtcdProcess, EtcdRecord, InitialCluster, JoinStep, JoinView, MemberError, MemberInfo, Members,
    Phase, PhaseEvent, TlsFiles, WaitReason, join_step,
};
use tracing::{debug, info, warn};

use super::standby::{Standing, current_nodes};
use super::{NodeFeed, plan};
use crate::data_dir::Layout;

const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// A node whose certificate of etcd is there, and that does not vote yet.
pub(in crate::command) struct MemberJoin {
    /// Reads Nodes.
    pub(in crate::command) client: Client,
    pub(in crate::command) layout: Layout,
    pub(in crate::command) node: String,
    pub(in crate::command) address: IpAddr,
}

impl MemberJoin {
    /// Starts etcd if it has data. Before anything that needs a server: the member may have been
    /// promoted just before its machine stopped, and the servers wait for its vote.
    pub(in crate::command) fn resume(&self) {
        let started = super::record(&self.layout).and_then(|record| {
            let Some(record) = record else { return Ok(()) };
            let process = super::etcd_process(&self.layout, &record)?;
            match self.view(&record, &process, None, &[], false) {
                JoinStep::Start { cluster } => {
                    process.ensure(&InitialCluster::Existing(cluster))?;
                    info!("etcd started with the data of this node");
                    Ok(())
                }
                _ => Ok(()),
            }
        });
        if let Err(failure) = started {
            warn!(error = %Chain(&*failure), "cannot start etcd with the data of this node");
        }
    }

    /// Whether this node votes, as reported by its own member, which has a majority. The servers
    /// that would report it may have been lost just after the promotion. `etcd.json` says so when
    /// this returns.
    pub(in crate::command) async fn is_promoted(&self) -> bool {
        let asked = async {
            let Some(mut record) = super::record(&self.layout)? else { return Ok(false) };
            let process = super::etcd_process(&self.layout, &record)?;
            let own = [record.client_url()];
            let Some((_, listed)) = confirmed_members(&own, &process.spec().tls).await else {
                return Ok(false);
            };
            let is_done = self.view(&record, &process, Some(&listed), &[], true) == JoinStep::Done;
            if is_done {
                record.advance(PhaseEvent::Promoted, &self.layout.etcd_record())?;
            }
            anyhow::Ok(is_done)
        };
        asked.await.unwrap_or_else(|failure| {
            warn!(error = %Chain(&*failure), "cannot read the members of etcd");
            false
        })
    }

    /// Resolves when this node votes, and `etcd.json` says so.
    pub(in crate::command) async fn until_voter(&self) {
        let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
        // Servers report where etcd is, and all nodes that could vote decide who does.
        let mut feed = NodeFeed::all(self.client.clone());
        let mut nodes = loop {
            tokio::select! {
                nodes = feed.changed() => break nodes,
                () = tokio::time::sleep(LONGEST_DELAY) => {
                    self.resume();
                    if self.is_promoted().await {
                        return;
                    }
                }
            }
        };
        let mut last = None;
        loop {
            let delay = match Box::pin(self.step(&nodes)).await {
                Ok(JoinStep::Done) => return,
                Ok(step) => {
                    if last.as_ref() != Some(&step) {
                        describe(&step);
                        backoff.reset();
                    }
                    last = Some(step);
                    backoff.delay()
                }
                Err(failure) => {
                    // etcd takes a few seconds after each change of its members.
                    debug!(error = %Chain(&*failure), "etcd does not take this node yet");
                    backoff.delay()
                }
            };
            tokio::select! {
                changed = feed.changed() => nodes = changed,
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    /// Takes the next step, and returns which it was.
    async fn step(&self, nodes: &[Node]) -> Result<JoinStep> {
        let others = plan::etcd_urls(nodes, &self.node);
        if others.is_empty() {
            return Ok(JoinStep::Wait(WaitReason::NoMemberAnswers));
        }
        let path = self.layout.etcd_record();
        let mut record = match super::record(&self.layout)? {
            Some(record) => record,
            None => EtcdRecord::new(Phase::Joining, &self.node, self.address, Vec::new()),
        };
        if record.others != others {
            record.others = others;
            record.save(&path)?;
        }
        let process = super::etcd_process(&self.layout, &record)?;
        // Last its own: one that was promoted may be the only one that this node knows and that is left.
        let mut urls = record.others.clone();
        urls.push(record.client_url());
        let found = confirmed_members(&urls, &process.spec().tls).await;
        let listed = found.as_ref().map(|(_, listed)| &listed[..]);
        let own = async { Members::connect(&[record.client_url()], &process.spec().tls).await };
        let answers = match (process.find(), own.await) {
            (Some(_), Ok(own)) => own.status().await.is_ok(),
            _ => false,
        };
        let step = self.view(&record, &process, listed, nodes, answers);
        if matches!(step, JoinStep::Add | JoinStep::Promote { .. }) {
            let current = self.admission(&record).await?;
            if self.view(&record, &process, listed, &current, answers) != step {
                bail!("the nodes of the cluster have changed");
            }
        }
        let members = found.map(|(members, _)| members);
        self.carry_out(&step, &mut record, &process, members.as_ref()).await?;
        Ok(step)
    }

    fn view(
        &self,
        record: &EtcdRecord,
        process: &EtcdProcess,
        members: Option<&[MemberInfo]>,
        nodes: &[Node],
        answers: bool,
    ) -> JoinStep {
        join_step(&JoinView {
            own_name: &record.member,
            own_peer_url: &record.peer_url(),
            members,
            has_data: process.has_data(),
            is_running: process.find().is_some(),
            answers,
            candidates: &plan::voter_candidates(nodes),
        })
    }

    /// The Nodes of now, if that of this node is among them. A node that was removed does not become a
    /// member with what it remembers of the cluster, and none takes a seat by what it remembers of
    /// the others.
    async fn admission(&self, record: &EtcdRecord) -> Result<Vec<Node>> {
        let (found, nodes) = current_nodes(&self.layout, record).await;
        if found == Standing::Removed {
            warn!("this node was removed from the cluster, and does not join etcd");
        }
        match found {
            Standing::Replaced => Ok(nodes),
            _ => bail!("no server confirms that this node is part of the cluster"),
        }
    }

    async fn carry_out(
        &self,
        step: &JoinStep,
        record: &mut EtcdRecord,
        process: &EtcdProcess,
        members: Option<&Members>,
    ) -> Result<()> {
        let path = self.layout.etcd_record();
        match (step, members) {
            (JoinStep::Add, Some(members)) => members.add_learner(&record.peer_url()).await?,
            (JoinStep::Start { cluster }, _) => {
                process.ensure(&InitialCluster::Existing(cluster.clone()))?;
            }
            (JoinStep::Promote { id }, Some(members)) => members.promote(*id).await?,
            (JoinStep::Withdraw { id }, Some(members)) => members.remove(*id).await?,
            (JoinStep::RemoveStale { id }, Some(members)) => {
                process.stop().await?;
                members.remove(*id).await?;
            }
            (JoinStep::DiscardData, _) => {
                process.stop().await?;
                process.set_aside(&format!("etcd.removed-{}", clock::now().as_second()))?;
                let others = std::mem::take(&mut record.others);
                EtcdRecord::new(Phase::Joining, &self.node, self.address, others).save(&path)?;
            }
            (JoinStep::Done, _) => record.advance(PhaseEvent::Promoted, &path)?,
            // Changes of the members are decided by their list only.
            (JoinStep::Wait(_), _) | (_, None) => {}
        }
        Ok(())
    }
}

/// A connection to one of the members, and the members as it lists them. It has a majority: one
/// that lags behind may not know this node yet, and its data would be discarded.
async fn confirmed_members(urls: &[String], tls: &TlsFiles) -> Option<(Members, Vec<MemberInfo>)> {
    for url in urls {
        let asked = async {
            let members = Members::connect(std::slice::from_ref(url), tls).await?;
            members.has_quorum().await?;
            let listed = members.list().await?;
            Ok::<_, MemberError>((members, listed))
        };
        match asked.await {
            Ok(found) => return Some(found),
            Err(failure) => debug!(url, error = %Chain(&failure), "member of etcd does not answer"),
        }
    }
    None
}

fn describe(step: &JoinStep) {
    match step {
        JoinStep::Wait(reason) => info!(reason = reason.text(), "waiting to become a voter"),
        JoinStep::Add => info!("added this node to etcd as a learner"),
        JoinStep::Start { cluster } => info!(members = cluster.len(), "etcd started"),
        JoinStep::Promote { .. } => info!("this node votes in etcd"),
        JoinStep::Withdraw { .. } => info!("others vote; removed the learner of this node"),
        JoinStep::RemoveStale { .. } => warn!("removed a member of this node whose data is gone"),
        JoinStep::DiscardData => warn!("set data of a member aside that was removed from etcd"),
        JoinStep::Done => {}
    }
}
