//! Runs `nft`, whose transactions are applied as a whole or not at all.
//!
//! The rules go in as text, which is what an operator sees with `nft list table`; answers come
//! back as JSON.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::name::LinkName;
use crate::rules::{DIGEST_CHAIN, SEEN_SET, memory_table};
use crate::service;
use crate::service::reroute::SeenReroute;
use crate::{hosts, overlay, policy};

/// It takes milliseconds; a longer run hangs.
const LIMIT: Duration = Duration::from_secs(20);

/// Why nftables could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    #[error("cannot run nft; is the package nftables installed?")]
    Run { source: io::Error },
    #[error("nft did not answer within {} s", LIMIT.as_secs())]
    Slow,
    #[error("nft refused with {status}: {message}")]
    Refused { status: std::process::ExitStatus, message: String },
    #[error("cannot parse the output of nft")]
    Answer { source: serde_json::Error },
}

/// Carries out one transaction.
pub(crate) async fn transact(text: &str) -> Result<(), NftError> {
    nft(&["-f", "-"], text).await.map(drop)
}

/// All chains and rules of the host.
pub(crate) async fn ruleset() -> Result<Value, NftError> {
    parse(&nft(&["-j", "list", "ruleset"], "").await?)
}

/// The state of our tables, read from the chains of the host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// The digest of the rules for guests that are in force.
    pub(crate) digest: Option<String>,
    pub(crate) service_chains: Option<BTreeSet<String>>,
    pub(crate) reroute: Option<SeenReroute>,
    /// The digest of the rules for hosts of the cluster that are in force.
    pub(crate) hosts: Option<String>,
    /// The digest of the policies that are in force.
    pub(crate) policies: Option<String>,
    /// The chains of policies for interfaces on bridges.
    pub(crate) tap_chains: Option<BTreeSet<String>>,
    /// The digest of the rules that guard the tunnel.
    pub(crate) overlay: Option<String>,
}

/// Which rules of ours are in force.
pub(crate) async fn tables(table: &str) -> Result<Tables, NftError> {
    let chains = parse(&nft(&["-j", "list", "chains"], "").await?)?;
    let services = service::table(table);
    Ok(Tables {
        digest: find_digest(&chains, table),
        service_chains: find_chains(&chains, "inet", &services).map(|seen| seen.chains),
        reroute: find_chains(&chains, "netdev", &services),
        hosts: find_stamp(&chains, "inet", &hosts::table(table)),
        policies: find_stamp(&chains, "inet", &policy::table(table)),
        tap_chains: find_chains(&chains, "bridge", &policy::table(table)).map(|seen| seen.chains),
        overlay: find_stamp(&chains, "inet", &overlay::table(table)),
    })
}

/// The chains of a table and the devices that they are for; none when there is no such table.
fn find_chains(answer: &Value, family: &str, table: &str) -> Option<SeenReroute> {
    let chains = answer["nftables"].as_array()?.iter().map(|item| &item["chain"]);
    let ours = chains.filter(|chain| chain["family"] == family && chain["table"] == table);
    let mut seen = SeenReroute::default();
    for chain in ours {
        seen.chains.extend(chain["name"].as_str().map(str::to_owned));
        let devices = match &chain["dev"] {
            Value::Array(several) => several.as_slice(),
            one => std::slice::from_ref(one),
        };
        seen.taps.extend(devices.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    (!seen.chains.is_empty()).then_some(seen)
}

/// The addresses that were seen on each tap.
pub(crate) async fn seen(table: &str) -> Result<Vec<(LinkName, Ipv4Addr)>, NftError> {
    let table = memory_table(table);
    let arguments = ["-j", "list", "set", "bridge", &table, SEEN_SET];
    Ok(find_seen(&parse(&nft(&arguments, "").await?)?))
}

fn find_seen(answer: &Value) -> Vec<(LinkName, Ipv4Addr)> {
    let items = answer["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let elements = items.iter().filter_map(|item| item["set"]["elem"].as_array()).flatten();
    let pair = |element: &Value| {
        // With a timeout, the value is one level deeper.
        let value = element.get("elem").map_or(element, |inner| &inner["val"]);
        let tap = value["concat"][0].as_str()?.parse().ok()?;
        Some((tap, value["concat"][1].as_str()?.parse().ok()?))
    };
    let mut found: Vec<_> = elements.filter_map(pair).collect();
    found.sort_unstable();
    found
}

fn find_digest(chains: &Value, table: &str) -> Option<String> {
    let all = chains["nftables"].as_array()?.iter().map(|item| &item["chain"]);
    let mut remembering = all.filter(|chain| chain["table"] == memory_table(table).as_str());
    remembering.next()?;
    let (guests, host) = (find_stamp(chains, "bridge", table)?, find_stamp(chains, "inet", table)?);
    // Another program may have removed one of them.
    (guests == host).then_some(guests)
}

/// The digest that a table is stamped with.
fn find_stamp(chains: &Value, family: &str, table: &str) -> Option<String> {
    let chains = chains["nftables"].as_array()?.iter().map(|item| &item["chain"]);
    let mut ours = chains.filter(|chain| chain["family"] == family && chain["table"] == table);
    let stamp = ours.find_map(|chain| chain["name"].as_str()?.strip_prefix(DIGEST_CHAIN))?;
    Some(stamp.to_owned())
}

fn parse(text: &[u8]) -> Result<Value, NftError> {
    serde_json::from_slice(text).map_err(|source| NftError::Answer { source })
}

async fn nft(arguments: &[&str], input: &str) -> Result<Vec<u8>, NftError> {
    tokio::time::timeout(LIMIT, run(arguments, input)).await.map_err(|_| NftError::Slow)?
}

async fn run(arguments: &[&str], input: &str) -> Result<Vec<u8>, NftError> {
    let failed = |source| NftError::Run { source };
    let mut child = Command::new("nft")
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // It reads everything before it prints, so this cannot block; when it ends early, its
        // message says why.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(failed)?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(NftError::Refused { status: output.status, message });
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_are_in_force_when_both_families_carry_the_same_digest() {
        let chain = |family: &str, table: &str, name: &str| json!({"chain": {"family": family, "table": table, "name": name, "handle": 1}});
        let check = |chains: Vec<Value>| find_digest(&json!({"nftables": chains}), "sheaf");
        let guests = || chain("bridge", "sheaf", "digest_aa");
        assert_eq!(check(vec![]), None);
        assert_eq!(check(vec![guests()]), None);
        assert_eq!(check(vec![guests(), chain("inet", "sheaf", "digest_bb")]), None);
        assert_eq!(check(vec![guests(), chain("inet", "other", "digest_aa")]), None);
        let memory = || chain("bridge", "sheaf_seen", "prerouting");
        assert_eq!(check(vec![memory(), guests()]), None);
        assert_eq!(check(vec![guests(), chain("inet", "sheaf", "digest_aa")]), None);
        let both = vec![
            memory(),
            guests(),
            chain("inet", "sheaf", "input"),
            chain("inet", "sheaf", "digest_aa"),
        ];
        assert_eq!(check(both).as_deref(), Some("aa"));
    }
}
