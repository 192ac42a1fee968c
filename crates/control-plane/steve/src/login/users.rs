//! Local users, their passwords and tokens, as objects of the Kubernetes API.
//!
//! A user is a `User` of `management.cattle.io/v3`; its password is in a Secret of a namespace of
//! its own, so that it is encrypted at rest with the other secrets; its rights are in role
//! bindings, for the name of the `User`.

mod sessions;

use http::Method;
use http::header::CONTENT_TYPE;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};

use super::oidc::{OidcIdentity, has_provider};
use super::password::{self, PasswordError, PasswordHash};
use super::token;

/// Where the hashes of passwords are.
pub const PASSWORD_NAMESPACE: &str = "cattle-local-user-passwords";
/// The user that a new cluster has.
pub const FIRST_USER: &str = "admin";
const GROUP: &str = "/apis/management.cattle.io/v3";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// Why a user cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("user {0:?} does not exist")]
    Absent(String),
    #[error("user {0:?} exists already")]
    Exists(String),
    #[error(
        "user name {0:?} is wrong: it has to be lower-case letters, digits and hyphens, at most 63"
    )]
    Name(String),
    #[error("user {0:?} logs in with OpenID Connect, and has no password here")]
    NoPassword(String),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error("the Kubernetes API refused")]
    Api(#[source] Box<kube::Error>),
}

impl From<kube::Error> for UserError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

/// The role of a new user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserRole {
    Administrator,
    ReadOnly,
    /// Nothing but what bindings say.
    None,
}

impl UserRole {
    fn cluster_role(self) -> Option<&'static str> {
        match self {
            Self::Administrator => Some("cluster-admin"),
            Self::ReadOnly => Some("view"),
            Self::None => None,
        }
    }
}

/// A user to be created.
#[derive(Debug, Clone, Copy)]
pub struct NewUser<'a> {
    pub name: &'a str,
    pub password: &'a str,
    pub role: UserRole,
    /// Reported to the user and their clients, which ask for another password; it restricts nothing.
    pub must_change_password: bool,
}

/// A token that was made: its object, and what its owner presents.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub object: Value,
    pub bearer: String,
}

/// The properties of a new token.
#[derive(Debug, Clone, Copy)]
pub struct TokenOrder<'a> {
    /// `token` or `kubeconfig`.
    pub prefix: &'a str,
    pub description: &'a str,
    /// How long it is good; for ever if zero.
    pub lifetime: SignedDuration,
    /// Whether it was derived from another token.
    pub derived: bool,
    /// The identity at a provider; none for a local user.
    pub(crate) identity: Option<&'a OidcIdentity>,
}

/// Reads and changes local users.
#[derive(Clone)]
pub struct Users {
    client: Client,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Users").finish_non_exhaustive()
    }
}

impl Users {
    /// `client` may read and write users, tokens, secrets and bindings.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, UserError> {
        let bytes = body.map_or_else(Vec::new, |body| serde_json::to_vec(body).unwrap_or_default());
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(CONTENT_TYPE, content_type).body(bytes);
        let request = request.map_err(kube::Error::HttpError)?;
        Ok(self.client.request::<Value>(request).await?)
    }

    async fn find(&self, path: &str) -> Result<Option<Value>, UserError> {
        match self.send(Method::GET, path, JSON, None).await {
            Err(UserError::Api(error)) if code(&error) == Some(404) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Deletes an object if it is there; whether it was.
    async fn remove(&self, path: &str) -> Result<bool, UserError> {
        match self.send(Method::DELETE, path, JSON, None).await {
            Err(UserError::Api(error)) if code(&error) == Some(404) => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }

    pub async fn list(&self) -> Result<Vec<Value>, UserError> {
        let mut list = self.send(Method::GET, &format!("{GROUP}/users"), JSON, None).await?;
        Ok(match list["items"].take() {
            Value::Array(users) => users,
            _ => Vec::new(),
        })
    }

    /// The user of a name.
    pub async fn get(&self, name: &str) -> Result<Option<Value>, UserError> {
        if !is_name(name) {
            return Ok(None);
        }
        self.find(&format!("{GROUP}/users/{name}")).await
    }

    /// The user who logs in with a name, which need not be that of the object.
    pub(crate) async fn by_username(&self, username: &str) -> Result<Option<Value>, UserError> {
        if let Some(user) = self.get(username).await?
            && user["username"].as_str().is_none_or(|own| own == username)
        {
            return Ok(Some(user));
        }
        let users = self.list().await?;
        Ok(users.into_iter().find(|user| user["username"] == username))
    }

    /// Creates a user. The password is written first: a user without one could not log in.
    pub async fn create(&self, new: NewUser<'_>) -> Result<Value, UserError> {
        let name = new.name;
        if !is_name(name) {
            return Err(UserError::Name(name.to_owned()));
        }
        password::check(name, new.password)?;
        if self.get(name).await?.is_some() {
            return Err(UserError::Exists(name.to_owned()));
        }
        self.write_password(name, new.password).await?;
        let user = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "User",
            "metadata": {"name": name}, "username": name, "displayName": name, "enabled": true,
            "mustChangePassword": new.must_change_password,
            "principalIds": [format!("local://{name}")],
        });
        let user = self.send(Method::POST, &format!("{GROUP}/users"), JSON, Some(&user)).await?;
        if let Some(role) = new.role.cluster_role() {
            self.bind(&user, role).await?;
        }
        Ok(user)
    }

    async fn bind(&self, user: &Value, role: &str) -> Result<(), UserError> {
        let group = "rbac.authorization.k8s.io";
        let name = text(user, "name");
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {
                "name": format!("local-user-{name}-{role}"), "ownerReferences": [owner(user)],
            },
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        });
        match self.send(Method::POST, BINDINGS, JSON, Some(&binding)).await {
            Err(UserError::Api(error)) if code(&error) == Some(409) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Replaces the password of a user. Their tokens stay good.
    pub async fn set_password(&self, name: &str, password: &str) -> Result<(), UserError> {
        let Some(user) = self.get(name).await? else {
            return Err(UserError::Absent(name.to_owned()));
        };
        if has_provider(&user) {
            return Err(UserError::NoPassword(name.to_owned()));
        }
        password::check(user["username"].as_str().unwrap_or(name), password)?;
        self.write_password(name, password).await?;
        let path = format!("{GROUP}/users/{name}");
        let patch = json!({"mustChangePassword": false});
        self.send(Method::PATCH, &path, MERGE, Some(&patch)).await.map(drop)
    }

    /// Deletes a user, with their password, tokens and the bindings made with them.
    pub async fn delete(&self, name: &str) -> Result<(), UserError> {
        let Some(user) = self.get(name).await? else {
            return Err(UserError::Absent(name.to_owned()));
        };
        for token in self.tokens(text(&user, "name")).await? {
            self.remove_token(text(&token, "name")).await?;
        }
        self.remove(&format!("{GROUP}/users/{name}")).await?;
        self.remove(&password_path(name)).await?;
        Ok(())
    }

    async fn write_password(&self, name: &str, password: &str) -> Result<(), UserError> {
        let hash = hashed(password).await?;
        let path = format!("/api/v1/namespaces/{PASSWORD_NAMESPACE}/secrets");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "namespace": PASSWORD_NAMESPACE},
            "stringData": {"password": hash},
        });
        match self.send(Method::POST, &path, JSON, Some(&secret)).await {
            Err(UserError::Api(error)) if code(&error) == Some(409) => {
                let patch = json!({"stringData": {"password": hash}});
                self.send(Method::PATCH, &password_path(name), MERGE, Some(&patch)).await.map(drop)
            }
            outcome => outcome.map(drop),
        }
    }

    /// The stored hash of a user's password.
    pub(crate) async fn password(&self, name: &str) -> Result<Option<PasswordHash>, UserError> {
        use base64::prelude::{BASE64_STANDARD, Engine as _};
        let Some(secret) = self.find(&password_path(name)).await? else { return Ok(None) };
        let bytes = secret["data"]["password"].as_str().and_then(|text| {
            let bytes = BASE64_STANDARD.decode(text).ok()?;
            String::from_utf8(bytes).ok()
        });
        Ok(bytes.as_deref().and_then(PasswordHash::parse))
    }

    /// Makes a token for a user.
    pub async fn issue(
        &self,
        user: &Value,
        order: TokenOrder<'_>,
        now: Timestamp,
    ) -> Result<NewToken, UserError> {
        let (name, secret) = (text(user, "name"), token::secret());
        let id = match order.prefix {
            "kubeconfig" => format!("kubeconfig-{name}-{}", token::random_text(5)),
            _ => format!("token-{}", token::random_text(5)),
        };
        let end = (!order.lifetime.is_zero()).then(|| now.saturating_add(order.lifetime).ok());
        let end = end.flatten().map(base::clock::rfc3339).unwrap_or_default();
        let mut object = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Token",
            "metadata": {
                "name": id, "ownerReferences": [owner(user)],
                "labels": {"authn.management.cattle.io/token-userId": name},
            },
            "token": token::hash(&secret), "userId": name, "authProvider": "local",
            "ttl": order.lifetime.as_millis() as i64, "expiresAt": end, "isDerived": order.derived,
            "description": order.description, "enabled": true,
        });
        if let Some(identity) = order.identity {
            identity.write(&mut object);
        }
        let path = format!("{GROUP}/tokens");
        let object = self.send(Method::POST, &path, JSON, Some(&object)).await?;
        Ok(NewToken { bearer: format!("{id}:{secret}"), object })
    }

    /// The tokens of a user.
    pub async fn tokens(&self, name: &str) -> Result<Vec<Value>, UserError> {
        let path = format!("{GROUP}/tokens");
        let mut list = self.send(Method::GET, &path, JSON, None).await?;
        let Value::Array(tokens) = list["items"].take() else { return Ok(Vec::new()) };
        Ok(tokens.into_iter().filter(|token| token["userId"] == name).collect())
    }

    /// Revokes a token; whether there was one.
    pub async fn remove_token(&self, name: &str) -> Result<bool, UserError> {
        self.remove(&format!("{GROUP}/tokens/{name}")).await
    }

    /// A setting of Rancher's, such as `first-login`.
    pub(crate) async fn setting(&self, name: &str) -> Result<Option<Value>, UserError> {
        self.find(&format!("{GROUP}/settings/{name}")).await
    }

    pub(crate) async fn write_setting(&self, name: &str, value: &str) -> Result<(), UserError> {
        let setting = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Setting",
            "metadata": {"name": name}, "value": value, "default": "",
        });
        let path = format!("{GROUP}/settings");
        match self.send(Method::POST, &path, JSON, Some(&setting)).await {
            Err(UserError::Api(error)) if code(&error) == Some(409) => {
                let (path, patch) = (format!("{path}/{name}"), json!({"value": value}));
                self.send(Method::PATCH, &path, MERGE, Some(&patch)).await.map(drop)
            }
            outcome => outcome.map(drop),
        }
    }

    /// Creates [`FIRST_USER`] in a cluster in which no user could log in yet. The password is that
    /// given or a new one, and is returned if it was set now.
    pub async fn bootstrap(&self, given: Option<&str>) -> Result<Option<String>, UserError> {
        if self.setting("first-login").await?.is_some() {
            return Ok(None);
        }
        let password = given.map_or_else(|| token::random_text(20), str::to_owned);
        // A start that was cut off left a user whose password was never shown.
        if self.get(FIRST_USER).await?.is_some() {
            self.write_password(FIRST_USER, &password).await?;
        } else {
            // A given password is in a command line or in the environment, so it is changed too.
            let (role, must_change_password) = (UserRole::Administrator, true);
            let new = NewUser { name: FIRST_USER, password: &password, role, must_change_password };
            self.create(new).await?;
        }
        self.write_setting("first-login", "true").await?;
        Ok(Some(password))
    }
}

/// Hashes a password away from the threads that answer requests.
async fn hashed(password: &str) -> Result<String, PasswordError> {
    let password = password.to_owned();
    let work = move || PasswordHash::new(&password).map(|hash| hash.to_text());
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(PasswordError::Hash))
}

fn owner(user: &Value) -> Value {
    json!({
        "apiVersion": "management.cattle.io/v3", "kind": "User", "name": text(user, "name"),
        "uid": text(user, "uid"),
    })
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn password_path(name: &str) -> String {
    format!("/api/v1/namespaces/{PASSWORD_NAMESPACE}/secrets/{name}")
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| inner(*byte));
    let bytes = name.as_bytes();
    name.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
}

#[cfg(test)]
mod tests;
