//! The way of a node into an etcd that others run: one step at a time, until it votes. The steps are
//! decided by `quorum::join_step`; here they are carried out.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use base::{Backoff, Chain, clock};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use quorum::{
    EtcdProcess, EtcdRecord, InitialCluster, JoinStep, JoinView, Members, Phase, PhaseEvent,
    WaitReason, join_step, node_of, seat,
};
use tracing::{debug, info, warn};

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
    /// Resolves when this node votes, and `etcd.json` says so.
    pub(in crate::command) async fn until_voter(&self) {
        let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
        // Servers tell where etcd is, and all nodes that could vote decide who does.
        let mut feed = NodeFeed::all(self.client.clone());
        let mut nodes = feed.changed().await;
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

    /// Takes the next step, and tells which it was.
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
        let members = Members::connect(&record.others, &process.spec().tls).await?;
        let step = self.look(&record, &process, &members, nodes).await;
        self.carry_out(&step, &mut record, &process, &members).await?;
        Ok(step)
    }

    async fn look(
        &self,
        record: &EtcdRecord,
        process: &EtcdProcess,
        members: &Members,
        nodes: &[Node],
    ) -> JoinStep {
        let listed = members.list().await.ok();
        let voters: Vec<&str> =
            listed.iter().flatten().map(|member| node_of(&member.name)).collect();
        let seat = seat(&self.node, &plan::voter_candidates(nodes), &voters);
        let own = async { Members::connect(&[record.client_url()], &process.spec().tls).await };
        let is_running = process.find().is_some();
        let answers = match (is_running, own.await) {
            (true, Ok(own)) => own.status().await.is_ok(),
            _ => false,
        };
        join_step(&JoinView {
            own_name: &record.member,
            own_peer_url: &record.peer_url(),
            members: listed.as_deref(),
            has_data: process.has_data(),
            is_running,
            answers,
            refusal: seat.err(),
        })
    }

    async fn carry_out(
        &self,
        step: &JoinStep,
        record: &mut EtcdRecord,
        process: &EtcdProcess,
        members: &Members,
    ) -> Result<()> {
        let path = self.layout.etcd_record();
        match step {
            JoinStep::Wait(_) => {}
            JoinStep::Add => members.add_learner(&record.peer_url()).await?,
            JoinStep::Start { cluster } => {
                process.ensure(&InitialCluster::Existing(cluster.clone()))?;
            }
            JoinStep::Promote { id } => members.promote(*id).await?,
            JoinStep::RemoveStale { id } => {
                process.stop().await?;
                members.remove(*id).await?;
            }
            JoinStep::DiscardData => {
                process.stop().await?;
                process.set_aside(&format!("etcd.removed-{}", clock::now().as_second()))?;
                let others = std::mem::take(&mut record.others);
                EtcdRecord::new(Phase::Joining, &self.node, self.address, others).save(&path)?;
            }
            JoinStep::Done => record.advance(PhaseEvent::Promoted, &path)?,
        }
        Ok(())
    }
}

fn describe(step: &JoinStep) {
    match step {
        JoinStep::Wait(reason) => info!(reason = reason.text(), "waiting to become a voter"),
        JoinStep::Add => info!("added this node to etcd as a learner"),
        JoinStep::Start { cluster } => info!(members = cluster.len(), "etcd started"),
        JoinStep::Promote { .. } => info!("this node votes in etcd"),
        JoinStep::RemoveStale { .. } => warn!("removed a member of this node whose data is gone"),
        JoinStep::DiscardData => warn!("set data of a member aside that was removed from etcd"),
        JoinStep::Done => {}
    }
}
