//! `sheaf node what-if`: the impact of losing a node, as the API server reports it.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use controllers::{MachineFate, NodeLoss};

use super::{WHAT_IF_NODES, find, store};
use crate::cli::ClusterScope;
use crate::command::link::ClusterClient;
use crate::command::management::view::StoreView;
use crate::command::{print, table};

pub(super) async fn show(place: &ClusterScope, name: &str) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    find(&cluster, name).await?;
    let Some(reply) = cluster.find(&format!("{WHAT_IF_NODES}{name}")).await? else {
        bail!("this server cannot answer: it does not serve {WHAT_IF_NODES}");
    };
    let loss: NodeLoss = serde_json::from_value(reply).context("cannot read the answer")?;
    print(&describe(&loss, store(&cluster).await?.as_ref()))
}

/// Without the node: machines, volumes, and the store of the cluster.
fn describe(loss: &NodeLoss, store: Option<&StoreView>) -> String {
    let node = &loss.node;
    let mut text = String::new();
    if loss.machines.is_empty() {
        let _ = writeln!(text, "no machine runs on node {node}");
    } else {
        let mut rows = vec![["MACHINE", "WITHOUT THE NODE", "REASON"].map(str::to_owned).to_vec()];
        rows.extend(loss.machines.iter().map(|machine| {
            let (fate, reason) = match &machine.fate {
                MachineFate::Restarted { node } => (format!("starts on {node}"), String::new()),
                MachineFate::Waiting { message } => ("waits for room".to_owned(), message.clone()),
                MachineFate::Down { message } => ("stays down".to_owned(), message.clone()),
            };
            vec![format!("{}/{}", machine.namespace, machine.name), fate, reason]
        }));
        text.push_str(&table::align(&rows));
    }
    text.push('\n');
    if loss.volumes.is_empty() {
        let _ = writeln!(text, "no volume has a copy on node {node}");
    } else {
        let mut rows =
            vec![["VOLUME", "CLAIM", "COPIES LEFT", "STATE"].map(str::to_owned).to_vec()];
        rows.extend(loss.volumes.iter().map(|volume| {
            let state = match volume.is_unavailable() {
                true => "unavailable: the only up-to-date copy is on this node",
                false => "degraded",
            };
            let copies = format!("{} of {}", volume.copies_left, volume.copies_wanted);
            vec![volume.name.clone(), volume.claim.clone(), copies, state.to_owned()]
        }));
        text.push_str(&table::align(&rows));
    }
    if let Some(consequence) = store.and_then(|store| store_without(store, node)) {
        let _ = write!(text, "\n{consequence}\n");
    }
    text
}

/// The effect on the API, if the node has a part in its store.
fn store_without(store: &StoreView, node: &str) -> Option<String> {
    let StoreView::Etcd { members, .. } = store else { return None };
    let voters: Vec<_> = members.iter().filter(|own| !own.is_learner).collect();
    voters.iter().find(|own| own.node == node)?;
    let healthy = voters.iter().filter(|own| own.node != node && own.db_size.is_some()).count();
    let voters = voters.len();
    let needed = voters / 2 + 1;
    Some(match healthy >= needed {
        true => format!("the API goes on: {healthy} of {voters} voters of etcd are left"),
        false => format!(
            "the API takes no writes: {healthy} of {voters} voters of etcd are left, and {needed} \
             are needed"
        ),
    })
}

#[cfg(test)]
mod tests {
    use controllers::{MachineLoss, VolumeLoss};

    use super::*;
    use crate::command::management::view::MemberView;

    #[test]
    fn all_consequences_are_named() {
        let machine =
            |name: &str, fate| MachineLoss { namespace: "default".into(), name: name.into(), fate };
        let volume = |name: &str, copies_left| VolumeLoss {
            name: name.into(),
            claim: "default/root".into(),
            copies_left,
            copies_wanted: 3,
        };
        let loss = NodeLoss {
            node: "n2".into(),
            machines: vec![
                machine("web", MachineFate::Restarted { node: "n3".into() }),
                machine("big", MachineFate::Waiting { message: "0/2 nodes are available".into() }),
                machine("old", MachineFate::Down { message: "disk a exists on n2 only".into() }),
            ],
            volumes: vec![volume("pvc-1", 0), volume("pvc-2", 2)],
        };
        let text = describe(&loss, None);
        for part in [
            "default/web   starts on n3",
            "default/big   waits for room     0/2 nodes are available",
            "default/old   stays down         disk a exists on n2 only",
            "0 of 3        unavailable: the only up-to-date copy is on this node",
            "2 of 3        degraded",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let text = describe(&NodeLoss { node: "n2".into(), ..NodeLoss::default() }, None);
        assert_eq!(text, "no machine runs on node n2\n\nno volume has a copy on node n2\n");
    }

    #[test]
    fn the_store_goes_on_with_a_majority() {
        let member = |node: &str, is_healthy: bool| MemberView {
            node: node.into(),
            url: String::new(),
            is_learner: false,
            is_leader: false,
            db_size: is_healthy.then_some(1),
            version: None,
        };
        for (healthy, node, expected) in [
            ([true, true, true], "n2", Some("the API goes on: 2 of 3")),
            ([true, true, false], "n2", Some("the API takes no writes: 1 of 3")),
            ([true, true, true], "worker", None),
        ] {
            let members = ["n1", "n2", "n3"].iter().zip(healthy);
            let members = members.map(|(name, healthy)| member(name, healthy)).collect();
            let (own, return_failure) = ("n1".to_owned(), None);
            let view = StoreView::Etcd { node: own, members, return_failure };
            let text = store_without(&view, node);
            let is_right = match expected {
                Some(part) => text.as_ref().is_some_and(|text| text.starts_with(part)),
                None => text.is_none(),
            };
            assert!(is_right, "{node}: {text:?}");
        }
        assert_eq!(store_without(&StoreView::Sqlite, "n1"), None);
    }
}
