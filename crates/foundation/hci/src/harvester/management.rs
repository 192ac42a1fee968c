//! Rancher's kinds of which Harvester's clients know: local users, their tokens, settings of the
//! login, and projects with their members.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

record! {
    /// Local user, who logs in with a password.
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
        /// Whether the password was set by another user.
        must_change_password: Option<bool>,
        /// Identities of the user at the providers of logins, `local://NAME` for the own one.
        principal_ids: Vec<String>,
    }

    /// Login of a user.
    LoginToken {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Hash of the secret part of the token.
        token: Option<String>,
        /// Name of the User that the token authenticates.
        user_id: Option<String>,
        /// Provider of the login: `local` for users with a password, `oidc` for OpenID Connect.
        auth_provider: Option<String>,
        /// Identity that the token authenticates, if it is not the User itself.
        user_principal: Option<LoginPrincipal>,
        /// Groups of that identity at the time of the login.
        group_principals: Vec<LoginPrincipal>,
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

    LoginPrincipal {
        /// Name in the Kubernetes API, with the prefix of its provider.
        login_name: Option<String>,
        /// `user` or `group`.
        principal_type: Option<String>,
    }

    /// Setting of the management API.
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

    /// Group of namespaces with members and a quota.
    Project {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<ProjectSpec>,
    }

    ProjectSpec {
        /// Name for people.
        display_name: Option<String>,
        /// Free text about the project.
        description: Option<String>,
        /// Name of the cluster: `local`.
        cluster_name: Option<String>,
        /// Limits of all namespaces of the project together.
        resource_quota: Option<ProjectQuota>,
        /// Limits of each namespace that has none of its own.
        namespace_default_resource_quota: Option<NamespaceQuota>,
    }

    ProjectQuota {
        /// Amounts by name, such as `limitsCpu`.
        limit: Map<String>,
        /// Sum of the limits of the namespaces, written by the project controller.
        used_limit: Map<String>,
    }

    NamespaceQuota {
        /// Amounts by name, such as `limitsCpu`.
        limit: Map<String>,
    }

    /// Rights of a member of a project.
    RoleTemplate {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Name for people.
        display_name: Option<String>,
        /// Free text about the role.
        description: Option<String>,
        /// Where the role is given: `project` or `cluster`.
        context: Option<String>,
        /// Whether the template comes with the cluster.
        builtin: Option<bool>,
        /// Whether a ClusterRole of the same name has the rules.
        external: Option<bool>,
        /// Whether the template can no longer be assigned.
        locked: Option<bool>,
        /// Rules of the role, as in a ClusterRole.
        rules: Vec<Any>,
        /// Templates whose rules are included.
        role_template_names: Vec<String>,
    }

    /// Membership of a user or group in a project.
    ProjectRoleTemplateBinding {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Cluster and name of the project: `local:NAME`.
        project_name: Option<String>,
        /// Name of the RoleTemplate.
        role_template_name: Option<String>,
        /// Name of the user who gets the role.
        user_name: Option<String>,
        /// Identity of the user at a provider of logins, such as `local://NAME`.
        user_principal_name: Option<String>,
        /// Name of the group that gets the role.
        group_name: Option<String>,
        /// Identity of the group at a provider of logins.
        group_principal_name: Option<String>,
        /// Service account that gets the role: `NAMESPACE:NAME`.
        service_account: Option<String>,
    }
}
