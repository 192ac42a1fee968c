//! The rights of a caller on the objects of one kind, by namespace: evaluated once for all objects of
//! an answer, however many they are.

use std::collections::BTreeMap;

use client::CatalogKind;
use serde_json::Value;

use crate::action::{self, ActionRights};
use crate::caller::Session;
use crate::error::SteveError;
use crate::rights::{self, AllowedNames, Rights};

/// The verbs that become links.
const VERBS: [(&str, &str); 3] = [("update", "update"), ("remove", "delete"), ("patch", "patch")];

/// The rights on the objects of a kind in one namespace.
#[derive(Debug, Clone)]
pub(crate) struct ObjectRights {
    links: [(&'static str, AllowedNames); 3],
    actions: ActionRights,
    of_collection: &'static [&'static str],
}

impl ObjectRights {
    pub(crate) fn of(kind: &CatalogKind, rights: &Rights) -> Self {
        let names = |verb| rights.names(verb, &kind.group, &kind.plural);
        let may_create = rights.may("create", &kind.group, &kind.plural, "");
        Self {
            links: VERBS.map(|(link, verb)| (link, names(verb))),
            actions: ActionRights::of(kind, rights),
            of_collection: if may_create { action::collection_names(kind) } else { &[] },
        }
    }

    /// The links of an object that the caller may follow.
    pub(crate) fn links(&self, name: &str) -> impl Iterator<Item = &'static str> {
        self.links.iter().filter(move |(_, names)| names.contains(name)).map(|(link, _)| *link)
    }

    /// Whether the caller can carry out an action that the object allows.
    pub(crate) fn allow(&self, kind: &CatalogKind, action: &str, object: &Value) -> bool {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let [_, _, (_, patch)] = &self.links;
        self.actions.allow(action, name)
            || patch.contains(name) && action::is_patch(kind, action, object)
    }

    /// Whether nothing is left that a namespace could add.
    fn are_complete(&self) -> bool {
        self.actions.are_complete() && self.links.iter().all(|(_, own)| *own == AllowedNames::All)
    }
}

/// The namespace whose bindings decide about an object; empty for objects of the cluster.
pub(crate) fn namespace_of<'a>(kind: &CatalogKind, object: &'a Value) -> &'a str {
    let field = if kind.is("", "namespaces") { "name" } else { "namespace" };
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Asks for the rights of the caller on a kind, once for each namespace.
pub(crate) struct RightsByNamespace<'a> {
    session: Session<'a>,
    kind: &'a CatalogKind,
    of_cluster: Option<ObjectRights>,
    known: BTreeMap<String, ObjectRights>,
}

impl<'a> RightsByNamespace<'a> {
    pub(crate) fn new(session: Session<'a>, kind: &'a CatalogKind) -> Self {
        Self { session, kind, of_cluster: None, known: BTreeMap::new() }
    }

    /// The rights in a namespace. From the second namespace on, those of the cluster are used if they
    /// are complete: an administrator's list costs two questions, however many namespaces it has.
    pub(crate) async fn of(&mut self, namespace: &str) -> Result<&ObjectRights, SteveError> {
        if !self.known.contains_key(namespace) {
            let found = self.ask(namespace).await?;
            self.known.insert(namespace.to_owned(), found);
        }
        Ok(&self.known[namespace])
    }

    async fn ask(&mut self, namespace: &str) -> Result<ObjectRights, SteveError> {
        if !self.known.is_empty() && self.of_cluster.is_none() {
            self.of_cluster = Some(ask(&self.session, self.kind, "").await?);
        }
        match &self.of_cluster {
            Some(rights) if rights.are_complete() => Ok(rights.clone()),
            _ => ask(&self.session, self.kind, namespace).await,
        }
    }

    /// The actions of the collection that the caller can carry out in `namespace`, or in any of the
    /// namespaces that were asked for.
    pub(crate) async fn of_collection(
        &mut self,
        namespace: &str,
    ) -> Result<&'static [&'static str], SteveError> {
        let all = action::collection_names(self.kind);
        if all.is_empty() {
            return Ok(all);
        }
        self.of(namespace).await?;
        let may = self.known.values().any(|rights| !rights.of_collection.is_empty());
        Ok(if may { all } else { &[] })
    }
}

/// The rights of the caller in a namespace; without one, in the whole cluster.
pub(crate) async fn ask(
    session: &Session<'_>,
    kind: &CatalogKind,
    namespace: &str,
) -> Result<ObjectRights, SteveError> {
    let (path, body) = match namespace {
        "" => rights::cluster_question(),
        namespace => rights::question(namespace),
    };
    let rights = Rights::read(&session.post(path, &body).await?);
    Ok(ObjectRights::of(kind, &rights))
}
