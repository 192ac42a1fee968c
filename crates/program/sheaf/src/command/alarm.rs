//! `sheaf alarm`: the alarms of the cluster, thin over the API.

use anyhow::{Context as _, Result, bail};
use base::clock;
use hci::alarm::{Alarm, Decision, GROUP, PLURAL};
use jiff::Timestamp;
use serde_json::json;

use super::link::ClusterClient;
use super::{alarm_receiver, table};
use crate::cli::{AlarmCommand, ClusterScope};

pub(super) fn run(command: &AlarmCommand) -> Result<()> {
    super::node::in_runtime(async {
        match command {
            AlarmCommand::List { place, all } => list(place, *all).await,
            AlarmCommand::Acknowledge { place, name, comment, undo } => {
                let spec = match undo {
                    true => json!({"acknowledged": false, "comment": null}),
                    false => json!({"acknowledged": true, "comment": comment}),
                };
                change(place, name, &spec).await?;
                let what = if *undo { "is open again" } else { "is acknowledged" };
                super::print(&format!("alarm {name} {what}\n"))
            }
            AlarmCommand::Silence { place, name, duration } => {
                let until = clock::rfc3339(clock::now() + *duration);
                change(place, name, &json!({"silencedUntil": until})).await?;
                super::print(&format!("alarm {name} is silenced until {until}\n"))
            }
            AlarmCommand::Receiver(command) => alarm_receiver::run(command).await,
        }
    })
}

fn path() -> String {
    format!("/apis/{GROUP}/v1/{PLURAL}")
}

async fn list(place: &ClusterScope, all: bool) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let items = cluster.items(&path()).await?.into_iter();
    let alarms = items.map(serde_json::from_value).collect::<Result<Vec<Alarm>, _>>();
    super::print(&view(&alarms.context("cannot read the alarms")?, all, clock::now()))
}

async fn change(place: &ClusterScope, name: &str, spec: &serde_json::Value) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let path = format!("{}/{name}", path());
    if cluster.find(&path).await?.is_none() {
        bail!(
            "there is no alarm {name}: it ended, or its name is another (sheaf alarm list --all)"
        );
    }
    cluster.merge(&path, &json!({"spec": spec})).await.map(drop)
}

/// The list, for people.
fn view(alarms: &[Alarm], all: bool, now: Timestamp) -> String {
    let (settled, open): (Vec<&Alarm>, Vec<&Alarm>) =
        alarms.iter().partition(|alarm| alarm.decision(now) != Decision::Open);
    let mut shown = if all { alarms.iter().collect() } else { open };
    shown.sort_by_key(|alarm| {
        let status = alarm.status.clone().unwrap_or_default();
        (status.severity != "critical", status.since, alarm.metadata.name.clone())
    });
    let mut rows = vec![["SEVERITY", "SINCE", "SUMMARY", "NAME"].map(str::to_owned).to_vec()];
    let mut details = String::new();
    for alarm in &shown {
        let status = alarm.status.clone().unwrap_or_default();
        let name = alarm.metadata.name.clone().unwrap_or_default();
        details.push_str(&format!("{name}\n"));
        for (label, text) in [("why", &status.reason), ("fix", &status.remedy)] {
            if let Some(text) = text {
                details.push_str(&format!("  {label}: {text}\n"));
            }
        }
        rows.push(vec![status.severity, status.since, status.summary, name]);
    }
    let mut text = match shown.is_empty() {
        true => "Nothing needs you.\n".to_owned(),
        false => format!("{}\n{details}", table::align(&rows)),
    };
    if !all && !settled.is_empty() {
        let count = settled.len();
        text.push_str(&format!("{count} acknowledged or silenced: sheaf alarm list --all\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(name: &str, severity: &str, spec: serde_json::Value) -> Alarm {
        serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": spec,
            "status": {"severity": severity, "since": "2026-01-02T03:04:05Z",
                "summary": format!("{name} is wrong"), "remedy": "mend it"},
        }))
        .unwrap()
    }

    #[test]
    fn the_most_severe_is_first_and_what_is_settled_is_counted() {
        let now: Timestamp = "2026-01-02T04:00:00Z".parse().unwrap();
        let all = [
            alarm("disk", "warning", json!({})),
            alarm("host", "critical", json!({"silencedUntil": "2026-01-02T03:30:00Z"})),
            alarm("known", "critical", json!({"acknowledged": true})),
            alarm("quiet", "warning", json!({"silencedUntil": "2026-01-02T05:00:00Z"})),
        ];
        let text = view(&all, false, now);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("critical") && lines[1].ends_with("host"), "{text}");
        assert!(lines[2].starts_with("warning") && lines[2].ends_with("disk"), "{text}");
        assert!(!text.contains("known is wrong"), "{text}");
        assert!(text.ends_with("2 acknowledged or silenced: sheaf alarm list --all\n"), "{text}");
        assert!(view(&all, true, now).contains("known is wrong"));
        assert_eq!(view(&[], false, now), "Nothing needs you.\n");
    }
}
