//! LinkMonitors: one for the network cards of all nodes, and one for each cluster network.
//!
//! Nodes write their links into them; links of nodes that are gone are removed here.

mod plan;

use kube::Client;

use crate::key::ObjectKey;
use crate::object::name;
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, Resource, is_refused};
use hci::network::{GROUP, VERSION};
use plan::{MonitorChange, MonitorState};

const MONITORS: Resource = Resource::new(GROUP, VERSION, "linkmonitors");
const NETWORKS: Resource = Resource::new(GROUP, VERSION, "clusternetworks");

/// All LinkMonitors are decided together, under one key. Reports of nodes need no answer.
#[derive(Debug, Default)]
pub(crate) struct LinkMonitorMapper;

impl EventMapper for LinkMonitorMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let concerns = match touch {
            ObjectChange::Missed(kind) => {
                [MONITORS, NETWORKS, NODES].iter().any(|own| own.is(kind))
            }
            ObjectChange::Object { kind, state, .. } => {
                let is_gone = *state == ObjectState::Gone;
                NETWORKS.is(kind) || is_gone && (MONITORS.is(kind) || NODES.is(kind))
            }
        };
        if concerns { vec![ObjectKey::new("", MONITORS.plural)] } else { Vec::new() }
    }
}

pub(crate) struct LinkMonitorReconciler(Objects);

impl LinkMonitorReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn state(&self) -> Result<MonitorState, ReconcileError> {
        let nodes = self.0.list(NODES, "", "").await.doing("list nodes")?;
        Ok(MonitorState {
            cluster_networks: self.0.list(NETWORKS, "", "").await.doing("list cluster networks")?,
            monitors: self.0.list(MONITORS, "", "").await.doing("list link monitors")?,
            nodes: nodes.iter().map(|node| name(node).to_owned()).collect(),
        })
    }
}

impl Reconciler for LinkMonitorReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, _: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        for change in plan::plan(&self.state().await?) {
            let written = match change {
                MonitorChange::Create(monitor) => {
                    self.0.create(MONITORS, "", &monitor).await.map(drop)
                }
                MonitorChange::Forget { name, patch } => {
                    self.0.merge(MONITORS, "", &name, &patch).await.map(drop)
                }
            };
            match written {
                // Created or deleted by another client meanwhile: the next event decides again.
                Err(failure) if [404, 409].iter().any(|code| is_refused(&failure, *code)) => {}
                written => written.doing("write a link monitor")?,
            }
        }
        Ok(ReconcileResult::Done)
    }
}
