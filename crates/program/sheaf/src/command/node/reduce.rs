//! `sheaf cluster reduce`: one management node, with its objects in SQLite. The steps are requests that
//! can be repeated, so that a command that is interrupted is given again.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base::Chain;
use quorum::{ManagementNode, VoterState, reduction};
use serde_json::json;
use tokio::time::Instant;

use super::{nodes, store};
use crate::cli::ClusterScope;
use crate::command::interrupt;
use crate::command::link::ClusterClient;
use crate::command::management::management_nodes;
use crate::command::management::view::{MEMBERS_PATH, MemberView, RETURN_PATH, StoreView};

/// etcd takes a few seconds after each change of its members.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// The objects are copied while the server starts.
const MOVE_TIMEOUT: Duration = Duration::from_secs(300);
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) async fn run(place: &ClusterScope, yes: bool) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let (keep, members) = match store(&cluster).await? {
        Some(StoreView::Etcd { node, members, .. }) => (node, members),
        Some(StoreView::Sqlite) => {
            return crate::command::print("the objects are in SQLite already\n");
        }
        Some(StoreView::ExternalEtcd) | None => bail!("the cluster has no etcd that Sheaf manages"),
    };
    let all = nodes(&cluster).await?;
    let others: Vec<String> = order(&keep, &members, &management_nodes(&all))?;
    crate::command::print(&describe(&keep, &others))?;
    if !yes && !confirm(&keep)? {
        bail!("nothing was changed");
    }
    let continues = "run the command again: what was done stays; `sheaf cluster status` shows it";
    interrupt::or_report(reduce(&cluster, place, &keep, &others), continues).await
}

fn order(keep: &str, members: &[MemberView], nodes: &[ManagementNode<'_>]) -> Result<Vec<String>> {
    let voters = members.iter().filter(|member| !member.is_learner);
    let states = voters
        .map(|MemberView { node, db_size, .. }| VoterState { node, is_healthy: db_size.is_some() });
    let voters: Vec<VoterState<'_>> = states.collect();
    Ok(reduction(keep, &voters, nodes)?.into_iter().map(str::to_owned).collect())
}

fn describe(keep: &str, others: &[String]) -> String {
    let mut text = format!("{keep} stays the only management node, with its objects in SQLite.\n");
    for other in others {
        let _ = writeln!(text, "becomes a worker        {other}");
    }
    text.push_str(
        "the API                 is unavailable for some seconds; then clients list again\n\
         afterwards              no other node serves the API while this one is away\n",
    );
    text
}

/// Asks a person, who types the name of the node.
fn confirm(keep: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nothing was changed: use --yes to go on without being asked");
    }
    eprint!("Type the name of the node that stays to go on: ");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read the answer")?;
    Ok(line.trim() == keep)
}

async fn reduce(
    cluster: &ClusterClient,
    place: &ClusterScope,
    keep: &str,
    others: &[String],
) -> Result<()> {
    for other in others {
        until_done(cluster, &format!("{MEMBERS_PATH}{other}"), &json!({})).await?;
        crate::command::print(&format!("{other} is a worker\n"))?;
    }
    until_done(cluster, RETURN_PATH, &json!({"keep": keep})).await?;
    until_sqlite(place, keep).await?;
    crate::command::print(&format!("the objects are in SQLite on {keep}\n"))
}

/// Repeats a request while etcd refuses it for a moment.
async fn until_done(cluster: &ClusterClient, path: &str, body: &serde_json::Value) -> Result<()> {
    let deadline = Instant::now() + STEP_TIMEOUT;
    loop {
        match cluster.post(path, body).await {
            Ok(_) => return Ok(()),
            Err(failure) if is_for_good(&failure) || Instant::now() > deadline => {
                return Err(failure);
            }
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

/// Whether a request was refused, and not only not answered.
fn is_for_good(failure: &anyhow::Error) -> bool {
    let refused = failure.chain().find_map(|cause| cause.downcast_ref::<kube::Error>());
    matches!(refused, Some(kube::Error::Api(status)) if status.code < 500)
}

/// Waits until the server has begun anew with its file.
async fn until_sqlite(place: &ClusterScope, keep: &str) -> Result<()> {
    let deadline = Instant::now() + MOVE_TIMEOUT;
    loop {
        let asked = async { store(&ClusterClient::to(place).await?).await };
        let failure = match asked.await {
            Ok(Some(StoreView::Sqlite)) => return Ok(()),
            Ok(Some(StoreView::Etcd { return_failure: Some(reason), .. })) => {
                bail!("the objects stay in etcd: {reason}");
            }
            Ok(_) => "it still serves them from etcd".to_owned(),
            Err(failure) => Chain(&*failure).to_string(),
        };
        if Instant::now() > deadline {
            bail!("{keep} does not serve the objects from SQLite yet: {failure}");
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_reports_what_becomes_of_each_node() {
        let member = |node: &str, db_size| MemberView {
            node: node.into(),
            url: String::new(),
            is_learner: false,
            is_leader: false,
            db_size,
            version: None,
        };
        let members = [member("n1", Some(1)), member("n2", Some(1)), member("n3", None)];
        let nodes = ["n1", "n2", "n3"].map(|node| ManagementNode { node, is_witness: false });
        let others = order("n1", &members, &nodes).unwrap();
        assert_eq!(others, ["n3", "n2"]);
        let text = describe("n1", &others);
        for part in ["n1 stays the only management node", "becomes a worker        n2"] {
            assert!(text.contains(part), "{text}");
        }
        let witness = [ManagementNode { node: "x1", is_witness: true }];
        let refused = order("n1", &members, &witness).unwrap_err().to_string();
        assert!(refused.contains("still has the witness x1"), "{refused}");
    }
}
