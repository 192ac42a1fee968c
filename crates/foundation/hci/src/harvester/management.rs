//! Rancher's kinds of which Harvester's clients know: local users, their tokens, and settings of
//! the login. None has a spec.

use crd::atom::ObjectMeta;
use crd::record::record;

record! {
    LocalUser {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Name to log in with.
        username: Option<String>,
        display_name: Option<String>,
        description: Option<String>,
        /// Whether the user may log in; true if it is not set.
        enabled: Option<bool>,
        /// Whether the password was given by somebody else.
        must_change_password: Option<bool>,
        principal_ids: Vec<String>,
    }

    LoginToken {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Hash of the secret part of the token.
        token: Option<String>,
        /// Name of the User that the token stands for.
        user_id: Option<String>,
        auth_provider: Option<String>,
        /// Lifetime in milliseconds; 0 is without end.
        ttl: Option<i64>,
        /// End of the lifetime; empty without one.
        expires_at: Option<String>,
        is_derived: Option<bool>,
        description: Option<String>,
        enabled: Option<bool>,
    }

    ManagementSetting {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        value: Option<String>,
        default: Option<String>,
        customized: Option<bool>,
        source: Option<String>,
    }
}
