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
        /// Name for people.
        display_name: Option<String>,
        /// Free text about the user.
        description: Option<String>,
        /// Whether the user may log in; true if it is not set.
        enabled: Option<bool>,
        /// Whether the password was given by somebody else.
        must_change_password: Option<bool>,
        /// Identities of the user at the providers of logins, `local://NAME` for the own one.
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
        /// Provider of the login; `local` for users of this cluster.
        auth_provider: Option<String>,
        /// Lifetime in milliseconds; 0 is without end.
        ttl: Option<i64>,
        /// End of the lifetime; empty without one.
        expires_at: Option<String>,
        /// Whether the token was made with another token, as for a kubeconfig.
        is_derived: Option<bool>,
        /// Purpose of the token.
        description: Option<String>,
        /// Whether the token can be used; true if it is not set.
        enabled: Option<bool>,
    }

    ManagementSetting {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Value in effect; the default if it is empty.
        value: Option<String>,
        /// Value without a change of an administrator.
        default: Option<String>,
        /// Whether the value was changed.
        customized: Option<bool>,
        /// Origin of the value: `default`, `db` or `env`.
        source: Option<String>,
    }
}
