//! The writes of every controller while the API server refuses something to it: the back-off must
//! work, whatever is refused and whatever the controllers write about it.

mod objects;

use std::collections::BTreeSet;
use std::time::Duration;

use base::{Tasks, Workloads};
use serde_json::{Value, json};

use self::objects::{GROUPS, populate, populate_places};
use crate::fake::Fake;
use crate::tests::{duties, stop};
use crate::{Config, Leadership, start};

/// A delay that doubles from 5 ms reaches a minute with the 14th attempt. Three controllers write
/// a claim, so this is three times that, and less than one write per second.
const MOST_WRITES: usize = 45;

/// The writes of a simulated minute, and the counters of the queues.
struct SimulatedMinute {
    writes: Vec<(String, String, String, usize)>,
    loads: Workloads,
}

async fn minute(populate: impl Fn(&Fake), refused: Option<(&str, u16)>) -> SimulatedMinute {
    let (fake, tasks, loads) = (Fake::new(), Tasks::default(), Workloads::default());
    populate(&fake);
    if let Some((resource, code)) = refused {
        fake.refuse(resource, code);
    }
    let config = Config {
        leadership: Leadership::Sole,
        duties: duties(),
        uploads: None,
        alarm_sender: None,
        loads: loads.clone(),
    };
    start(fake.client(), config, &tasks);
    // The clock of the test is paused while any task is busy.
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop(&tasks).await;
    SimulatedMinute { writes: fake.writes(), loads }
}

fn written(minute: &SimulatedMinute) -> BTreeSet<String> {
    minute.writes.iter().map(|(_, resource, ..)| resource.clone()).collect()
}

fn retries(minute: &SimulatedMinute, queue: &'static str) -> u64 {
    minute.loads.of(queue).counts()[2]
}

/// A controller whose queue stays empty is not tested by any other test of this file: it needs an
/// object in `populate`.
#[tokio::test(start_paused = true)]
async fn every_controller_has_an_object_to_work_on() {
    let minute = minute(populate, None).await;
    let queues = minute.loads.all();
    assert!(queues.len() > 40, "{} queues", queues.len());
    let idle: Vec<&str> =
        queues.iter().filter(|(_, load)| load.counts()[0] == 0).map(|(name, _)| *name).collect();
    assert_eq!(idle, [""; 0], "no object for these queues");
    // The minimum that the controllers of these kinds write.
    let resources = written(&minute);
    for resource in objects::WRITTEN {
        assert!(resources.contains(*resource), "{resource} is not written: {resources:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_controller_writes_faster_than_its_back_off_allows() {
    let mut failures: Vec<Value> = Vec::new();
    let mut tried = BTreeSet::new();
    for group in GROUPS {
        let objects = |fake: &Fake| {
            populate_places(fake);
            group(fake);
        };
        for resource in written(&minute(objects, None).await) {
            for code in [403, 500] {
                let minute = minute(objects, Some((&resource, code))).await;
                let busy = minute.writes.iter().filter(|(.., count)| *count > MOST_WRITES);
                failures.extend(busy.map(|(method, own, name, count)| {
                    json!([format!("{resource} answers {code}"), method, own, name, count])
                }));
            }
            tried.insert(resource);
        }
    }
    for resource in ["/pods", "/events", "kubevirt.io/virtualmachineinstances"] {
        assert!(tried.contains(resource), "{tried:?}");
    }
    assert!(failures.is_empty(), "written too often in a minute: {failures:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_retried_with_a_back_off_and_reported_once() {
    let minute = minute(populate, Some(("/pods", 403))).await;
    let count = |method: &str, resource: &str, name: &str| {
        let found = minute.writes.iter().find(|(own, kind, object, _)| {
            (own.as_str(), kind.as_str()) == (method, resource) && object.starts_with(name)
        });
        found.map_or(0, |(.., count)| *count)
    };
    let attempts = count("POST", "/pods", "virt-launcher-vm-");
    assert!((8..=20).contains(&attempts), "{attempts} attempts to create the pod");
    assert_eq!(count("POST", "/events", "vm: FailedCreate"), 1);
    let writes = count("PATCH", "kubevirt.io/virtualmachineinstances", "vm");
    assert!(writes <= 6, "{writes} writes of the instance");
    let retried = retries(&minute, "vmi");
    assert!(retried >= 8, "workqueue_retries_total is {retried}");
}
