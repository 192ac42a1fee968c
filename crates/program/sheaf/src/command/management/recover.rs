//! `sheaf cluster recover`: a management node continues alone after the majority was lost for good.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use anyhow::{Context as _, Result, bail};
use base::clock;
use quorum::{
    EtcdRecord, InitialCluster, MemberAnswer, MemberInfo, MemberStatus, Members, Phase, PhaseEvent,
    RecoveryPlan, TlsFiles, next_phase, node_of, recovery,
};
use tokio::time::Instant;

use super::store::{ManagedEtcd, POLL_INTERVAL, START_TIMEOUT};
use crate::cli::DataDir;
use crate::command::join::Membership;
use crate::data_dir::Layout;

pub(in crate::command) async fn run(data: &DataDir, give_up: &[String], yes: bool) -> Result<()> {
    let layout = Layout::new(data.data_dir.as_deref())?;
    layout.require()?;
    let record = recoverable(&layout)?;
    let _lock = layout.take().context("stop Sheaf on this node first")?;
    let process = super::etcd_process(&layout, &record)?;
    let mut managed = ManagedEtcd { record, process };
    let was_running = managed.process.find().is_some();
    let plan = Box::pin(assess(&managed, give_up)).await;
    let node = node_of(&managed.record.member).to_owned();
    let go_on = match &plan {
        Ok(plan) => {
            crate::command::print(&describe(&node, plan))?;
            yes || confirm(&node)?
        }
        Err(_) => false,
    };
    if !go_on {
        if !was_running {
            managed.process.stop().await?;
        }
        plan?;
        bail!("nothing was changed");
    }
    managed.process.stop().await?;
    let copy = format!("etcd-before-recovery-{}", clock::now().as_second());
    let copy = managed.process.back_up(&copy).context("cannot copy the data of etcd")?;
    // Noted first: a start after a kill completes it.
    managed.record.is_recovering = true;
    managed.record.save(&layout.etcd_record())?;
    managed.process.ensure(&InitialCluster::Forced)?;
    let answered = match Box::pin(managed.until_majority()).await {
        Ok(()) => Box::pin(managed.raise_revisions(&layout)).await,
        failed => failed,
    };
    // The next start is an ordinary one.
    managed.process.stop().await?;
    let kept = || format!("the data of before is in {}", copy.display());
    answered.with_context(kept)?;
    managed.record.others.clear();
    if managed.record.phase == Phase::Joining {
        managed.record.phase = next_phase(Some(&Phase::Joining), PhaseEvent::Promoted)?;
    }
    managed.record.save(&layout.etcd_record())?;
    crate::command::print(&format!(
        "\n{node} is the only member of etcd now; {}.\nStart Sheaf here, then remove each lost \
         node: sheaf node remove NAME --force\n",
        kept()
    ))
}

/// The record of a node that can go on alone. One that was promoted just before its machine stopped
/// may not know that it votes; its etcd does.
fn recoverable(layout: &Layout) -> Result<EtcdRecord> {
    let record = super::record(layout)?.filter(|record| match record.phase {
        Phase::Voter => true,
        Phase::Joining => layout.root.join("etcd").exists(),
        Phase::Moving | Phase::Refused { .. } | Phase::Returning | Phase::Returned => false,
    });
    let Some(record) = record else {
        bail!(
            "the objects in {} are not in an etcd that Sheaf runs: there is no majority to recover",
            layout.root.display()
        );
    };
    if Membership::load(layout)?.is_some_and(|known| known.is_witness()) {
        bail!(
            "this node is a witness, which serves no API: recover on a management node instead; \
             nothing was changed"
        );
    }
    Ok(record)
}

/// Asks every member that the own one knows, and those that they know in turn: data that lags behind
/// does not list members that came later.
async fn assess(managed: &ManagedEtcd, give_up: &[String]) -> Result<RecoveryPlan> {
    managed.process.ensure(&InitialCluster::Known)?;
    let deadline = Instant::now() + START_TIMEOUT;
    let (members, listed) = loop {
        let asked = async {
            let members = managed.members().await?;
            let listed = members.list().await?;
            Ok::<_, quorum::MemberError>((members, listed))
        };
        match asked.await {
            Ok(found) => break found,
            Err(failure) if Instant::now() > deadline => {
                return Err(failure).context("the member of etcd on this node does not answer");
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    };
    let has_majority = members.has_quorum().await.is_ok();
    let answers = ask_all(listed, &managed.record.others, &managed.process.spec().tls).await;
    Ok(recovery(&managed.record.member, &answers, has_majority, give_up)?)
}

/// The answers of these members, of those at these client URLs, and of all that they list.
async fn ask_all(listed: Vec<MemberInfo>, others: &[String], tls: &TlsFiles) -> Vec<MemberAnswer> {
    let mut answers: Vec<MemberAnswer> = Vec::new();
    let mut waiting = listed;
    for url in others {
        waiting.extend(
            ask(std::slice::from_ref(url), tls).await.map(|(_, its)| its).unwrap_or_default(),
        );
    }
    // The own list is first, where every member has the name that is known here.
    let mut next = 0;
    while let Some(info) = waiting.get(next).cloned() {
        next += 1;
        if answers.iter().any(|own| own.info.id == info.id) {
            continue;
        }
        let (status, its) = ask(&info.client_urls, tls).await.unzip();
        waiting.extend(its.unwrap_or_default());
        answers.push(MemberAnswer { info, status });
    }
    answers
}

/// The state of one member, and the members that it lists.
async fn ask(urls: &[String], tls: &TlsFiles) -> Option<(MemberStatus, Vec<MemberInfo>)> {
    let member = Members::connect(urls, tls).await.ok()?;
    let status = member.status().await.ok()?;
    // Without its list, it is one of those that others list.
    let listed = member.list().await.unwrap_or_default();
    Some((status, listed))
}

fn describe(node: &str, plan: &RecoveryPlan) -> String {
    let mut text = format!("etcd has lost its majority. {node} can go on alone.\n");
    let _ = writeln!(text, "newest change here      revision {}", plan.revision);
    for lost in &plan.lost {
        let _ = writeln!(text, "does not answer         {lost}");
    }
    for dropped in &plan.dropped {
        let _ = writeln!(text, "has nothing newer       {dropped}");
    }
    for (node, entries) in &plan.given_up {
        let _ = writeln!(text, "newer changes are lost  {node}, {entries} log entries");
    }
    text.push_str(
        "lost                    changes that reached only the nodes that do not answer\n\
         \n\
         Nodes that do not answer must be lost for good: if they only cannot be reached from here,\n\
         repair the network instead. They must not start again with their old data; remove their\n\
         data directories and let them join again.\n",
    );
    text
}

/// Asks a person, who types the name of the node.
fn confirm(node: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nothing was changed: use --yes to go on without being asked");
    }
    eprint!("Type the name of this node to go on: ");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read the answer")?;
    Ok(line.trim() == node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_is_lost_before_anything_changes() {
        let (lost, dropped) = (vec!["n2".to_owned()], vec!["n3".to_owned()]);
        let given_up = vec![("x1".to_owned(), 15)];
        let text = describe("n1", &RecoveryPlan { revision: 812, lost, dropped, given_up });
        for part in [
            "n1 can go on alone",
            "newest change here      revision 812",
            "does not answer         n2",
            "has nothing newer       n3",
            "newer changes are lost  x1, 15 log entries",
            "changes that reached only the nodes that do not answer",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
