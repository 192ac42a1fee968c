//! Replicas and migrations on networks of their own, while a guest writes.

use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Wire, token};
use super::migrate::{
    LONGHORN, MACHINE, VMIS, counter, counting_volume, migrate, until_on, until_over,
};
use crate::harness::{Node, assert_has, poll};

const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";
const PREFIX: &str = "10.198.47";

#[test]
fn replicas_and_migrations_use_networks_of_their_own() {
    let wire = Wire::new("shfown", "10.199.53");
    let one = Node::management(&wire.here());
    let (url, text) = token(&one.sheaf.run("token create"));
    let mut two = wire.outsider(&url, &text, "two");
    two.sheaf.begin();
    until_ready(&one, "two");
    let volume = counting_volume(&one);
    one.kubectl().apply(MACHINE);
    one.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    until_replicas_are_at(&one, &volume, "10.199.53.");
    let first = counter(&one);

    // The setting waits for the addresses of all nodes, and says so.
    wire.add_addresses(PREFIX, 28, 0);
    let http = one.sheaf.http();
    let refused = http.merge(
        &format!("{SETTINGS}/storage-network"),
        &json!({"value": "{\"range\":\"10.0.0.0/8\"}"}),
    );
    assert_eq!(refused.status, 422);
    assert_has(refused.text(), "min supported prefix length");
    set(&one, "storage-network", &format!("{{\"range\":\"{PREFIX}.32/28\"}}"));
    poll("the setting says what is missing", || {
        let condition = configured(&one, "storage-network");
        let message = condition["message"].as_str().unwrap_or_default().to_owned();
        if message.contains("two: its host has no address") { Ok(()) } else { Err(message) }
    });
    set(&one, "storage-network", &format!("{{\"range\":\"{PREFIX}.0/28\"}}"));
    until_configured(&one, "storage-network");
    until_replicas_are_at(&one, &volume, &format!("{PREFIX}."));
    let second = counter(&one);
    assert!(second > first, "{first} {second}: it was started again");

    wire.add_addresses(PREFIX, 28, 16);
    set(&one, "vm-migration-network", &format!("{{\"range\":\"{PREFIX}.16/28\"}}"));
    until_configured(&one, "vm-migration-network");
    migrate(&one, "there", &json!({}));
    until_over(&one, "there", "Succeeded");
    until_on(&one, "two");
    let vmi = http.get(&format!("{VMIS}/a")).ok();
    let address = &vmi["status"]["migrationState"]["targetNodeAddress"];
    assert_eq!(*address, format!("{PREFIX}.18"));
    assert!(counter(&one) > second, "it was started again");

    // Without the setting, replicas are reached as before.
    set(&one, "storage-network", "");
    until_replicas_are_at(&one, &volume, "10.199.53.");
    assert!(counter(&one) > second, "it was started again");
    assert_eq!(configured(&one, "storage-network")["status"], "False");
}

fn set(one: &Node, name: &str, value: &str) {
    one.sheaf.http().merge(&format!("{SETTINGS}/{name}"), &json!({"value": value})).ok();
}

fn configured(one: &Node, name: &str) -> Value {
    let setting = one.sheaf.http().get(&format!("{SETTINGS}/{name}")).ok();
    let conditions = setting["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut own = conditions.into_iter().filter(|own| own["type"] == "configured");
    own.next().unwrap_or_default()
}

#[track_caller]
fn until_configured(one: &Node, name: &str) {
    poll(&format!("{name} is in effect"), || match configured(one, name) {
        done if done["status"] == "True" => Ok(()),
        other => Err(other.to_string()),
    });
}

/// Waits until the engine is connected to all its replicas at addresses that begin so, and all are
/// in sync.
#[track_caller]
fn until_replicas_are_at(one: &Node, volume: &str, prefix: &str) {
    poll(&format!("replicas are at {prefix}"), || {
        let engine = one.sheaf.http().get(&format!("{LONGHORN}/engines/{volume}-e-0")).ok();
        let map = |field: &str| engine["status"][field].as_object().cloned().unwrap_or_default();
        let (addresses, modes) = (map("currentReplicaAddressMap"), map("replicaModeMap"));
        let is_there = |own: &Value| own.as_str().is_some_and(|own| own.starts_with(prefix));
        let is_done = addresses.len() > 1
            && addresses.values().all(is_there)
            && modes.len() == addresses.len()
            && modes.values().all(|mode| mode == "RW");
        if is_done { Ok(()) } else { Err(engine["status"].to_string()) }
    });
}
