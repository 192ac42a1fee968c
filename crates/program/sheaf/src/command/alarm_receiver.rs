//! `sheaf alarm receiver`: webhooks that alarms are sent to, thin over the API.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base::clock;
use hci::alarm::{AlarmReceiver, DELIVERED, GROUP, RECEIVER_PLURAL, TEST_ANNOTATION};
use serde_json::{Value, json};

use super::link::ClusterClient;
use super::table;
use crate::cli::AlarmReceiverCommand;

/// The server gives up a message after ten seconds.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const TEST_INTERVAL: Duration = Duration::from_millis(300);

pub(super) async fn run(command: &AlarmReceiverCommand) -> Result<()> {
    match command {
        AlarmReceiverCommand::List { place } => {
            let cluster = ClusterClient::to(place).await?;
            let items = cluster.items(&path("")).await?.into_iter();
            let receivers = items.map(serde_json::from_value).collect::<Result<Vec<_>, _>>();
            super::print(&view(&receivers.context("cannot read the alarm receivers")?))
        }
        AlarmReceiverCommand::Add { place, name, .. } => {
            let cluster = ClusterClient::to(place).await?;
            cluster.post(&path(""), &definition(command)).await?;
            super::print(&format!(
                "alarm receiver {name} added; `sheaf alarm receiver test {name}` sends a message\n"
            ))
        }
        AlarmReceiverCommand::Test { place, name } => {
            test(&ClusterClient::to(place).await?, name).await
        }
        AlarmReceiverCommand::Remove { place, name } => {
            let cluster = ClusterClient::to(place).await?;
            require(&cluster, name).await?;
            cluster.delete(&path(name)).await?;
            super::print(&format!("alarm receiver {name} removed\n"))
        }
    }
}

fn path(name: &str) -> String {
    let all = format!("/apis/{GROUP}/v1/{RECEIVER_PLURAL}");
    if name.is_empty() { all } else { format!("{all}/{name}") }
}

async fn require(cluster: &ClusterClient, name: &str) -> Result<AlarmReceiver> {
    let Some(found) = cluster.find(&path(name)).await? else {
        bail!("there is no alarm receiver {name}: `sheaf alarm receiver list` shows all");
    };
    serde_json::from_value(found).context("cannot read the alarm receiver")
}

/// The object of a new receiver.
fn definition(command: &AlarmReceiverCommand) -> Value {
    let AlarmReceiverCommand::Add {
        name, url, url_secret, format, critical_only, no_resolved, ..
    } = command
    else {
        return Value::Null;
    };
    let mut spec = json!({
        "format": format.name(), "sendResolved": !no_resolved,
        "minimumSeverity": if *critical_only { "critical" } else { "warning" },
    });
    if let Some(url) = url {
        spec["url"] = json!(url);
    }
    if let Some(secret) = url_secret {
        spec["urlSecret"] = json!({"name": secret});
    }
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "AlarmReceiver",
        "metadata": {"name": name}, "spec": spec})
}

async fn test(cluster: &ClusterClient, name: &str) -> Result<()> {
    require(cluster, name).await?;
    let request = clock::now_rfc3339();
    let patch = json!({"metadata": {"annotations": {TEST_ANNOTATION: request}}});
    cluster.merge(&path(name), &patch).await?;
    let answered = async {
        loop {
            let test = require(cluster, name).await?.status.and_then(|status| status.test);
            if let Some(test) = test.filter(|test| test.request == request) {
                return anyhow::Ok(test);
            }
            tokio::time::sleep(TEST_INTERVAL).await;
        }
    };
    let Ok(test) = tokio::time::timeout(TEST_TIMEOUT, answered).await else {
        bail!("no answer after {} s: is the server running?", TEST_TIMEOUT.as_secs());
    };
    match test?.error {
        Some(error) => bail!("the message to {name} was not delivered: {error}"),
        None => super::print(&format!("the message was delivered to {name}\n")),
    }
}

/// The list, for people.
fn view(receivers: &[AlarmReceiver]) -> String {
    if receivers.is_empty() {
        return "No alarm receivers: `sheaf alarm receiver add NAME --url URL` adds one.\n"
            .to_owned();
    }
    let head = ["NAME", "FORMAT", "SENDS", "DELIVERED", "LAST", "MESSAGE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for receiver in receivers {
        let (spec, status) = (&receiver.spec, receiver.status.clone().unwrap_or_default());
        let sends = match (spec.paused, spec.minimum_severity.as_deref()) {
            (Some(true), _) => "nothing (paused)",
            (_, Some("critical")) => "critical",
            _ => "all",
        };
        let condition = status.conditions.iter().find(|own| own.r#type == DELIVERED);
        let dash =
            |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or("-".into());
        rows.push(vec![
            receiver.metadata.name.clone().unwrap_or_default(),
            spec.format.clone().unwrap_or_default(),
            sends.to_owned(),
            dash(condition.map(|own| own.status.clone())),
            dash(status.last_delivery),
            dash(condition.and_then(|own| own.message.clone())),
        ]);
    }
    table::align(&rows)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Arguments {
        #[command(subcommand)]
        command: AlarmReceiverCommand,
    }

    fn parsed(words: &str) -> Result<AlarmReceiverCommand, String> {
        let words = std::iter::once("receiver").chain(words.split(' '));
        Arguments::try_parse_from(words).map(|own| own.command).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_become_an_object_or_name_what_is_wrong() {
        let object =
            definition(&parsed("add a --url http://x --format ntfy --critical-only").unwrap());
        assert_eq!(
            object["spec"],
            json!({"format": "ntfy", "sendResolved": true, "minimumSeverity": "critical",
                "url": "http://x"})
        );
        let object = definition(&parsed("add a --url-secret hook --no-resolved").unwrap());
        assert_eq!(object["spec"]["urlSecret"], json!({"name": "hook"}));
        assert_eq!(object["spec"]["sendResolved"], false);
        for (words, text) in [
            ("add a", "--url <URL>"),
            ("add a --url-secret Hook/x", "--url-secret <NAME>"),
            ("add a --url x --url-secret b", "cannot be used with"),
            ("add a --url x --format mail", "alertmanager, slack, ntfy"),
        ] {
            assert!(parsed(words).unwrap_err().contains(text), "{words}");
        }
    }

    #[test]
    fn the_list_shows_why_nothing_arrives() {
        let receiver = serde_json::from_value(json!({
            "metadata": {"name": "ops"}, "spec": {"format": "slack", "url": "http://x"},
            "status": {"conditions": [{"type": "Delivered", "status": "False",
                "message": "the receiver answered 404 Not Found"}]},
        }));
        let text = view(&[receiver.unwrap()]);
        assert!(text.lines().nth(1).unwrap().ends_with("404 Not Found"), "{text}");
        assert!(view(&[]).contains("receiver add"));
    }
}
