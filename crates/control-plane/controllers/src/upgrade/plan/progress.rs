//! The progress of an upgrade as a whole, and the label and conditions that report it. Pure; knows
//! nothing of nodes.

use super::{FAILED, SUCCEEDED};
use crate::condition::Condition;

/// Values of the label, as clients of Harvester know them.
const PREPARING_NODES: &str = "PreparingNodes";
const UPGRADING_NODES: &str = "UpgradingNodes";

/// The phase of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    Preparing,
    /// The message names the current step, or what it waits for.
    Upgrading(String),
    GoingBack(String),
    Completed,
    Aborted,
    Failed(String),
}

impl Progress {
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Preparing => PREPARING_NODES,
            Self::Upgrading(_) | Self::GoingBack(_) => UPGRADING_NODES,
            Self::Completed => SUCCEEDED,
            Self::Aborted | Self::Failed(_) => FAILED,
        }
    }

    pub(super) fn conditions(&self) -> Vec<Condition> {
        let done = |kind| Condition::new(kind, "True");
        let open = |kind| Condition::new(kind, "Unknown");
        let mut all = vec![done("ImageReady"), done("RepoReady")];
        let (prepared, upgraded, completed) = match self {
            Self::Preparing => (open("NodesPrepared"), open("NodesUpgraded"), open("Completed")),
            Self::Upgrading(message) => (
                done("NodesPrepared"),
                open("NodesUpgraded").because("Upgrading", message.clone()),
                open("Completed").because("Upgrading", message.clone()),
            ),
            Self::GoingBack(message) => (
                done("NodesPrepared"),
                open("NodesUpgraded").because("Aborting", message.clone()),
                open("Completed").because("Aborting", message.clone()),
            ),
            Self::Completed => (done("NodesPrepared"), done("NodesUpgraded"), done("Completed")),
            Self::Aborted => {
                let message = "every node runs the program that it ran before";
                let not = |kind| Condition::new(kind, "False").because("Aborted", message);
                (done("NodesPrepared"), not("NodesUpgraded"), not("Completed"))
            }
            Self::Failed(message) => {
                let not = |kind| Condition::new(kind, "False").because("Failed", message.clone());
                (open("NodesPrepared"), not("NodesUpgraded"), not("Completed"))
            }
        };
        let services = match self {
            Self::Completed => done("SystemServicesUpgraded"),
            _ => open("SystemServicesUpgraded"),
        };
        all.extend([prepared, upgraded, services, completed]);
        all
    }
}
