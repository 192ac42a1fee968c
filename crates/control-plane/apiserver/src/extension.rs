//! Extensions of the server by other parts of this process: kinds with rules of their own, whole
//! groups, and paths outside of the API.
//!
//! The server authenticates and authorizes; an extension answers. It does not know whether
//! it is called here or, in another cluster, as an aggregated server and a webhook,
//! so nothing of this server's insides is in its hands.

mod adapt;

use std::fmt;
use std::sync::Arc;

use auth::User;
use base::Workloads;
use futures_util::future::BoxFuture;
use http::request;
use serde_json::Value;

use crate::http::body::RequestBody;
use crate::http::respond::HttpReply;

pub(crate) use adapt::{aggregated, call, enter, group_value, open, resource_list};

/// Everything that is added, in the order in which it is asked.
#[derive(Clone, Default)]
pub struct Extensions {
    /// Makes the CustomResourceDefinitions to install, and to bring up to date at each start.
    pub definitions: Option<fn() -> Vec<Value>>,
    /// Makes objects to create where they are missing. They come after the definitions.
    pub objects: Option<fn() -> Vec<Value>>,
    pub rules: Vec<Arc<dyn ExtensionRules>>,
    pub groups: Vec<Arc<dyn Group>>,
    pub paths: Vec<Arc<dyn Paths>>,
    /// Asked about bearer tokens and session cookies.
    pub credentials: Vec<Arc<dyn Credentials>>,
    /// Objects that nodes may read besides those of their pods; if absent, nodes have the rights
    /// of kubelets.
    pub nodes: Option<Arc<dyn NodeAccess>>,
    /// Asked about evictions of pods, before disruption budgets are checked.
    pub evictions: Vec<Arc<dyn EvictionReview>>,
    /// Their work queues, for the metrics.
    pub loads: Workloads,
}

impl fmt::Debug for Extensions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Extensions").finish_non_exhaustive()
    }
}

impl Extensions {
    pub(crate) fn group(&self, name: &str) -> Option<&Arc<dyn Group>> {
        self.groups.iter().find(|group| group.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtensionOperation {
    Create,
    Update,
    Delete,
}

/// One write that is being judged, as a webhook would receive it.
#[derive(Clone, Copy)]
pub struct Review<'a> {
    pub act: ExtensionOperation,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub user: &'a User,
    /// Other objects, as they are now.
    pub objects: &'a dyn Lookup,
    pub access: &'a dyn Access,
}

impl fmt::Debug for Review<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { act, group, resource, namespace, name, .. } = self;
        write!(out, "{act:?} {group}/{resource} {namespace}/{name}")
    }
}

/// Reads objects of any kind, at whatever version is preferred.
pub trait Lookup {
    /// `namespace` is empty for cluster-scoped objects.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;
    /// All of a namespace, or of all if it is empty.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value>;
}

/// The rights of users. A rule that copies data out of another object checks them first.
pub trait Access {
    fn may(&self, user: &User, attempt: &Attempt<'_>) -> bool;
}

/// One thing that a user wants to do to an object.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub plural: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Why a write is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub causes: Vec<Cause>,
}

/// One field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// Defaults and rules of kinds that the server knows only by their definition. Not async: work
/// that needs other systems belongs into a controller.
pub trait ExtensionRules: Send + Sync {
    fn concern(&self, group: &str, resource: &str) -> bool;
    /// Fills in what was left out; must leave alone what is there.
    fn complete(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Denial>;
    /// Warnings for the client, or why not. `object` is absent for deletions.
    fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Denial>;
    /// Why a subresource that needs a running container is not available, if there is more to say
    /// than that no pods run.
    fn explain_pod(&self, _pod: &Value, _subresource: &str) -> Option<String> {
        None
    }
}

/// Tokens that another component issues, and whose validity is in objects.
pub trait Credentials: Send + Sync {
    /// The user that a token belongs to; `None` if the token is not one of theirs, or no longer
    /// valid. Called for every request that carries a token.
    fn user(&self, token: &str, objects: &dyn Lookup) -> Option<User>;
}

/// An object of a node's interest that holds what other nodes must not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeObject<'a> {
    Secret {
        namespace: &'a str,
        name: &'a str,
    },
    ConfigMap {
        namespace: &'a str,
        name: &'a str,
    },
    /// A service account, or a token of it.
    ServiceAccount {
        namespace: &'a str,
        name: &'a str,
    },
}

/// The rights of the nodes of this platform.
pub trait NodeAccess: Send + Sync {
    /// Pin of the key that a node joined with, if one is recorded.
    fn key_pin(&self, node: &str, objects: &dyn Lookup) -> Option<String>;
    /// The ClusterRole of a node.
    fn role(&self, node: &str, objects: &dyn Lookup) -> &'static str;
    /// Whether something that is placed on the node uses the object.
    fn relates(&self, node: &str, object: NodeObject<'_>, objects: &dyn Lookup) -> bool;
    /// The kind that nodes run instead of pods. Tokens of service accounts can be bound to it.
    fn guests(&self) -> GuestKind;
    /// Why a node may not have a token, if it may not.
    fn review_token(&self, request: &NodeTokenRequest<'_>) -> Result<(), TokenDenial>;
}

/// Why a node may not have a token, in the words of the platform that decides it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenDenial(pub String);

/// A kind whose objects run on nodes as pods do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestKind {
    pub group: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    /// The kind in messages.
    pub noun: &'static str,
}

/// A node's request for the token of a service account.
#[derive(Debug, Clone, Copy)]
pub struct NodeTokenRequest<'a> {
    pub node: &'a str,
    pub account: &'a str,
    pub seconds: i64,
    /// The object of [`NodeAccess::guests`] that the token ends with.
    pub guest: Option<&'a Value>,
}

/// Reviews evictions of pods.
pub trait EvictionReview: Send + Sync {
    /// `pod` as it is stored, `eviction` as it was sent.
    fn review<'a>(
        &'a self,
        pod: &'a Value,
        eviction: &'a Value,
        mode: EvictionMode,
    ) -> BoxFuture<'a, Result<(), Denial>>;
}

/// Whether an eviction is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionMode {
    Real,
    /// Nothing may be changed.
    DryRun,
}

/// A resource of an extended group, as discovery lists it.
#[derive(Debug, Clone, Copy)]
pub struct ExtensionResource {
    /// `virtualmachines/start`
    pub name: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
}

/// An authorized request.
#[derive(Debug)]
pub struct AuthorizedRequest {
    /// None for [`PathAccess::Open`].
    pub user: Option<User>,
    pub parts: request::Parts,
    pub body: RequestBody,
}

/// A group of the API that another component serves.
pub trait Group: Send + Sync {
    fn name(&self) -> &'static str;
    /// The preferred first.
    fn versions(&self) -> &'static [&'static str];
    fn resources(&self) -> &[ExtensionResource];
    /// The path after the name, as the authorizer calls it: `vnc/screenshot`, but `portforward`
    /// without the port.
    fn subresource<'a>(&self, rest: &'a str) -> &'a str;
    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply>;
}

/// The right that a caller needs.
#[derive(Debug, Clone, Copy)]
pub struct RequiredAccess<'a> {
    pub verb: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Which requests to a path outside of the API reach its handler.
#[derive(Debug, Clone, Copy)]
pub enum PathAccess<'a> {
    /// All: the handler checks credentials of its own.
    Open,
    /// Those whose credentials are good, and anonymous ones: the handler acts as the caller.
    Authenticated,
    /// Those whose sender may do this.
    Resource(RequiredAccess<'a>),
}

/// Paths outside of the API.
pub trait Paths: Send + Sync {
    /// Whether requests to this path, with this query, are for the handler.
    fn own(&self, path: &str, query: &str) -> bool;
    fn access<'a>(&self, _path: &'a str) -> PathAccess<'a> {
        PathAccess::Open
    }
    fn answer(&self, asked: AuthorizedRequest) -> BoxFuture<'_, HttpReply>;
    /// The refusal of a request that does not reach the handler, in the handler's own shape; `None`
    /// for that of the API. `status` is what the API would answer.
    fn refuse(&self, _status: &Value) -> Option<HttpReply> {
        None
    }
}

/// The address that a request came from, among the extensions of its parts. Requests from this
/// process have none.
#[derive(Debug, Clone, Copy)]
pub struct SourceAddress(pub std::net::SocketAddr);
