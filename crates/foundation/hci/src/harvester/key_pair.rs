//! Public keys that people log in with.

use crd::atom::ObjectMeta;
use crd::record::record;

use super::Condition;

record! {
    /// Public SSH key of a user.
    KeyPair {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: KeyPairSpec,
        status: Option<KeyPairStatus>,
    }

    KeyPairSpec {
        /// Public key in OpenSSH format.
        public_key: Option<String>,
    }

    KeyPairStatus {
        /// MD5 fingerprint of the key.
        finger_print: Option<String>,
        conditions: Vec<Condition>,
    }
}
