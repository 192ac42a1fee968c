//! Growing a volume, and the end of a growth that its storage refuses.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::{bytes, claim_path, find_claim, human, quantity, text, wait};
use crate::cli::VolumeClaim;
use crate::command::link::ClusterClient;
use crate::command::{interrupt, print};

const REFUSED: &str = "VolumeResizeFailed";

pub(super) async fn run(volume: &VolumeClaim, size: u64, no_wait: bool) -> Result<()> {
    let link = ClusterClient::to(&volume.place).await?;
    let claim = find_claim(&link, volume).await?;
    let name = &volume.name;
    let has = size_now(&claim);
    if bytes(has).is_some_and(|has| i64::try_from(size).is_ok_and(|size| size < has)) {
        bail!("{name} has {}: volumes cannot shrink", human(has));
    }
    let wanted = quantity(size);
    let earlier = refusals(&link, &claim).await;
    let patch = json!({"spec": {"resources": {"requests": {"storage": wanted}}}});
    let path = claim_path(&link, name);
    link.merge(&path, &patch).await.with_context(|| format!("cannot grow {name}"))?;
    if no_wait {
        return print(&format!("{name} is growing to {}\n", human(&wanted)));
    }
    let what = format!("{name} to grow to {}", human(&wanted));
    let grown = wait::until(&link, &path, &what, |claim| {
        let Some(claim) = claim else { bail!("{name} was deleted") };
        let has = bytes(text(claim, "/status/capacity/storage"));
        let has = has.and_then(|own| u64::try_from(own).ok());
        Ok(has.is_some_and(|own| own >= size).then_some(()))
    });
    let continues =
        format!("{name} still grows in the cluster; `sheaf volume list` shows its size");
    let refused = refusal(&link, &claim, &earlier);
    let ended = async {
        tokio::select! {
            grown = grown => grown.map(|()| None),
            why = refused => Ok(Some(why)),
        }
    };
    match Box::pin(interrupt::or_report(ended, continues)).await? {
        None => print(&format!("{name} has {}\n", human(&wanted))),
        Some(why) => bail!(
            "{name} cannot grow to {}: {why}; `sheaf volume grow {name} SIZE` with a smaller size \
             above {} takes the request back",
            human(&wanted),
            human(has)
        ),
    }
}

/// The size of the volume; the requested one if there is no volume yet.
fn size_now(claim: &Value) -> &str {
    match text(claim, "/status/capacity/storage") {
        "" => text(claim, "/spec/resources/requests/storage"),
        has => has,
    }
}

/// Waits until the storage refuses the growth of a claim, and returns its message.
async fn refusal(link: &ClusterClient, claim: &Value, earlier: &[Value]) -> String {
    loop {
        let now = refusals(link, claim).await;
        if let Some(new) = newest(&now, earlier) {
            return text(new, "/message").to_owned();
        }
        tokio::time::sleep(wait::NOTICE_DELAY).await;
    }
}

/// The events about growth of a claim that was refused; none for a user who may not read events.
async fn refusals(link: &ClusterClient, claim: &Value) -> Vec<Value> {
    let mut events = link.items(&link.core("events")).await.unwrap_or_default();
    events.retain(|event| {
        text(event, "/involvedObject/uid") == text(claim, "/metadata/uid")
            && text(event, "/reason") == REFUSED
    });
    events
}

/// An event that was not there before, or was reported again since.
fn newest<'a>(now: &'a [Value], earlier: &[Value]) -> Option<&'a Value> {
    let is_known = |event: &Value| {
        let same = |other: &&Value| {
            other["metadata"]["uid"] == event["metadata"]["uid"] && other["count"] == event["count"]
        };
        earlier.iter().any(|other| same(&other))
    };
    now.iter().rfind(|event| !is_known(event))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_that_of_the_volume_and_not_what_was_requested() {
        let mut claim = json!({"spec": {"resources": {"requests": {"storage": "900Ti"}}}});
        assert_eq!(size_now(&claim), "900Ti");
        claim["status"] = json!({"capacity": {"storage": "1Gi"}});
        assert_eq!(size_now(&claim), "1Gi");
    }

    #[test]
    fn only_a_new_refusal_counts() {
        let event = |uid: &str, count: i64| json!({"metadata": {"uid": uid}, "count": count});
        let earlier = [event("a", 1)];
        assert_eq!(newest(&earlier, &earlier), None);
        assert_eq!(newest(&[event("a", 2)], &earlier), Some(&event("a", 2)));
        let now = [event("a", 1), event("b", 1)];
        assert_eq!(newest(&now, &earlier), Some(&event("b", 1)));
    }
}
