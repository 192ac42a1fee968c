//! Events are kept for an hour and then removed, like everything else: by a deletion that
//! watchers see.

use std::time::Duration;

use base::{Tasks, clock};
use jiff::Timestamp;
use store::{Expect, Write, WriteChange};

use crate::api::{Api, ObjectEntry};
use crate::schemas::refresh;

const TABLE: &str = "events";
const EVERY: Duration = Duration::from_secs(60);

pub(crate) fn start(api: &Api, tasks: &Tasks) {
    let api = api.clone();
    let mut stop = tasks.stop_signal();
    tasks.spawn("event expiry", async move {
        let every = EVERY.min(api.settings.event_ttl.max(Duration::from_secs(1)));
        loop {
            tokio::select! {
                () = stop.requested() => return,
                () = tokio::time::sleep(every) => sweep(&api).await,
            }
        }
    });
}

async fn sweep(api: &Api) {
    let now = clock::now();
    for entry in refresh::entries(api, TABLE) {
        if !is_expired(&entry, now, api.settings.event_ttl) {
            continue;
        }
        let removal = Write {
            table: TABLE.into(),
            name: entry.name.clone(),
            expect: Expect::At(entry.revision),
            change: WriteChange::Delete,
        };
        // Renewed or removed meanwhile: then it is not ours to remove.
        let _ = api.store.write(removal).await;
    }
}

/// An event lives on as long as it keeps happening.
fn is_expired(entry: &ObjectEntry, now: Timestamp, ttl: Duration) -> bool {
    let event = entry.item.to_value();
    let times = [
        &event["lastTimestamp"],
        &event["series"]["lastObservedTime"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    let newest = times.iter().filter_map(|time| time.as_str()?.parse::<Timestamp>().ok()).max();
    newest.is_some_and(|newest| {
        now.as_second() - newest.as_second() > i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX)
    })
}
