//! A lease for each API server, as upstream keeps them: the list of leases is the list of servers.
//! Renewing it also increases the revision of an otherwise idle store: clients that restart an
//! expired list expect that.

use std::net::SocketAddr;
use std::time::Duration;

use base::{Tasks, clock};
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Expect, Write, WriteChange};
use tracing::warn;

use crate::api::Api;
use crate::schemas::refresh;
use crate::setup::bootstrap::call;
use crate::verbs::object;

const TABLE: &str = "leases";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const IDENTITY: &str = "apiserver.kubernetes.io/identity";
const EVERY: Duration = Duration::from_secs(60);
/// After how many seconds without renewal a server is taken for gone, as upstream does.
const LEASE: i64 = 3600;

pub(crate) fn start(api: &Api, tasks: &Tasks) {
    let (api, mut stop) = (api.clone(), tasks.stop_signal());
    let mut lease = lease(api.settings.advertise, clock::now());
    tasks.spawn("server lease", async move {
        loop {
            lease["spec"]["renewTime"] = clock::rfc3339_micro(clock::now()).into();
            tokio::select! {
                () = stop.requested() => return,
                () = renew(&api, &mut lease) => {}
            }
            sweep(&api, clock::now()).await;
            tokio::select! {
                () = stop.requested() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    });
}

fn lease(advertise: SocketAddr, now: Timestamp) -> Value {
    let address: String = advertise
        .to_string()
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character } else { '-' })
        .collect();
    let name = format!("apiserver-{}", address.trim_matches('-'));
    let holder = format!("{name}_{}", uuid::Uuid::new_v4());
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name, "namespace": "kube-system", "labels": {IDENTITY: "kube-apiserver"},
        },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": LEASE,
            "acquireTime": clock::rfc3339_micro(now),
        },
    })
}

/// Writes the lease over whatever an earlier process at this address has left.
async fn renew(api: &Api, lease: &mut Value) {
    let path = format!("{LEASES}/{}", object::name(lease));
    let (code, live) = call(api, Method::GET, &path, None).await;
    let (code, answer) = match code {
        StatusCode::OK => {
            lease["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            call(api, Method::PUT, &path, Some(lease)).await
        }
        StatusCode::NOT_FOUND => {
            object::set_meta(lease, "resourceVersion", None);
            call(api, Method::POST, LEASES, Some(lease)).await
        }
        _ => (code, live),
    };
    if !code.is_success() {
        warn!(%code, message = %answer["message"], "cannot renew the lease of this server");
    }
}

/// Removes the leases of servers that are gone.
async fn sweep(api: &Api, now: Timestamp) {
    for entry in refresh::entries(api, TABLE) {
        if !is_expired(&entry.item.to_value(), now) {
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

fn is_expired(lease: &Value, now: Timestamp) -> bool {
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse().ok());
    object::namespace(lease) == "kube-system"
        && lease["metadata"]["labels"][IDENTITY] == "kube-apiserver"
        && renewed.is_some_and(|renewed: Timestamp| now.as_second() - renewed.as_second() > LEASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leases_of_servers_expire() {
        let begun: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut lease = lease("[::1]:6443".parse().unwrap(), begun);
        assert_eq!(object::name(&lease), "apiserver-1--6443");
        lease["spec"]["renewTime"] = clock::rfc3339_micro(begun).into();
        let after = |seconds| Timestamp::from_second(begun.as_second() + seconds).unwrap();
        assert!(!is_expired(&lease, after(LEASE)));
        assert!(is_expired(&lease, after(LEASE + 1)));
        lease["metadata"]["labels"] = json!({});
        assert!(!is_expired(&lease, after(LEASE + 1)), "another program's");
    }
}
