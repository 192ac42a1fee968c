//! Whole documents: one per group and version for `/openapi/v3`, one of everything for
//! `/openapi/v2`. Pure functions; caching and HTTP are the caller's.

mod roots;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use types::Kind;
use types::openapi::OpenApiVersion;

use super::extension_group::{self, DescribedGroup};
use super::resource::{Described, SchemaSource, root};
use super::{custom, operation};

/// The version 3 document of one group and version; `resources` are those of it.
pub(super) fn v3(group: &str, version: &str, resources: &[Described<'_>]) -> Value {
    let mut paths = Map::new();
    paths.insert(
        format!("{}/", root(group, version)),
        operation::discovery(group, version, OpenApiVersion::V3),
    );
    for resource in resources {
        operation::paths(resource, OpenApiVersion::V3, &mut paths);
    }
    v3_document(&paths, &schemas(resources, OpenApiVersion::V3))
}

/// The version 3 document of a group that an extension answers for.
pub(super) fn v3_of_extension(group: &DescribedGroup) -> Value {
    let mut paths = Map::new();
    extension_group::paths(group, OpenApiVersion::V3, &mut paths);
    v3_document(&paths, &schemas(&[], OpenApiVersion::V3))
}

fn v3_document(paths: &Map<String, Value>, schemas: &Map<String, Value>) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": security()},
        "security": [{"BearerToken": []}],
    })
}

/// The version 2 document of everything. `server` is the version of the server.
pub(super) fn v2(
    server: &str,
    resources: &[Described<'_>],
    extensions: &[DescribedGroup],
) -> Value {
    let mut paths = Map::new();
    for (group, version) in group_versions(resources) {
        let path = format!("{}/", root(group, version));
        paths.insert(path, operation::discovery(group, version, OpenApiVersion::V2));
    }
    let groups = resources.iter().map(|resource| resource.group);
    roots::paths(groups.chain(extensions.iter().map(|group| group.name)), &mut paths);
    for group in extensions {
        extension_group::paths(group, OpenApiVersion::V2, &mut paths);
    }
    for resource in resources {
        operation::paths(resource, OpenApiVersion::V2, &mut paths);
    }
    let mut definitions = schemas(resources, OpenApiVersion::V2);
    roots::schemas(&mut definitions);
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": security(),
        "security": [{"BearerToken": []}],
    })
}

fn schemas(resources: &[Described<'_>], form: OpenApiVersion) -> Map<String, Value> {
    let mut kinds = Vec::new();
    if form == OpenApiVersion::V2 {
        kinds.extend(roots::kinds());
    }
    for resource in resources {
        if let SchemaSource::BuiltIn(kind) = &resource.source {
            kinds.push(*kind);
            kinds.extend(Kind::find(resource.group, resource.version, resource.list_kind));
        }
        for sub in &resource.subresources {
            kinds.extend(
                sub.kind.and_then(|(group, version, kind)| Kind::find(group, version, kind)),
            );
        }
    }
    let served: Vec<(&str, &str)> = group_versions(resources).into_iter().collect();
    let mut schemas = types::openapi::schemas(&kinds, &served, form);
    for resource in resources {
        custom::schemas(resource, form, &mut schemas);
    }
    schemas
}

fn group_versions<'a>(resources: &[Described<'a>]) -> BTreeSet<(&'a str, &'a str)> {
    resources.iter().map(|resource| (resource.group, resource.version)).collect()
}

fn security() -> Value {
    json!({"BearerToken": {
        "type": "apiKey",
        "in": "header",
        "name": "authorization",
        "description": "Bearer Token authentication",
    }})
}

#[cfg(test)]
mod tests;
