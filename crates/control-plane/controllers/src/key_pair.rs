//! Public keys get the fingerprint by which people recognise them.

use base::clock;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::key::ObjectKey;
use crate::object::{is_merged, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::fields;
use crate::resource::{Objects, Resource, is_refused};

const KEY_PAIRS: Resource = Resource::new("harvesterhci.io", "v1beta1", "keypairs");

/// Every key pair that changes.
#[derive(Debug, Default)]
pub(crate) struct KeyPairs;

impl EventMapper for KeyPairs {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        match touch {
            ObjectChange::Object { kind, namespace, name, state: ObjectState::Live }
                if KEY_PAIRS.is(kind) =>
            {
                vec![ObjectKey::new(namespace, name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct KeyPairReconciler(Objects);

impl KeyPairReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for KeyPairReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found =
            self.0.get(KEY_PAIRS, &key.namespace, &key.name).await.doing("get the key pair")?;
        let Some(patch) = found.and_then(|pair| status(&pair, clock::now())) else {
            return Ok(ReconcileResult::Done);
        };
        match self.0.merge(KEY_PAIRS, &key.namespace, &key.name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("write the fingerprint"),
        }
    }
}

fields! {
    struct KeyPairFields<'a> {
        spec: KeyPairSpec<'a>,
    }

    struct KeyPairSpec<'a> {
        public_key: &'a str,
    }
}

/// The patch that makes a key pair say its fingerprint, if it does not.
fn status(pair: &Value, now: Timestamp) -> Option<Value> {
    let fingerprint = hci::public_key::fingerprint(read::<KeyPairFields<'_>>(pair).spec.public_key);
    let mut conditions = condition::of(pair);
    let wanted = match fingerprint {
        Some(_) => Condition::new("validated", "True"),
        None => Condition::new("validated", "False")
            .because("InvalidKey", "spec.publicKey is not in valid OpenSSH public key format"),
    };
    condition::set(&mut conditions, &wanted, now);
    let patch = json!({"status": {
        "fingerPrint": fingerprint.unwrap_or_default(),
        "conditions": conditions,
    }});
    (!is_merged(pair, &patch)).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::text;

    #[test]
    fn a_key_gets_its_fingerprint_once() {
        let key =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
        let mut pair = json!({"spec": {"publicKey": key}});
        let patch = status(&pair, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(text(&patch, "/status/fingerPrint").len(), 47);
        assert_eq!(text(&patch, "/status/conditions/0/status"), "True");
        pair["status"] = patch["status"].clone();
        assert_eq!(status(&pair, Timestamp::UNIX_EPOCH), None);
        pair["spec"]["publicKey"] = json!("changed");
        let patch = status(&pair, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(text(&patch, "/status/conditions/0/status"), "False");
    }
}
