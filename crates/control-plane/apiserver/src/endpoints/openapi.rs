//! OpenAPI documents: built at the first request, and cached compressed until the served kinds
//! change.
//!
//! `document.rs` builds them from descriptions of the served kinds and is pure; this module
//! knows the catalog, HTTP and caching. Idle, it holds nothing.

mod custom;
mod document;
mod extension_group;
mod gnostic;
mod operation;
mod resource;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, ETAG, EXPIRES, HeaderValue, IF_NONE_MATCH, LOCATION, VARY,
};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use crate::aggregation;
use crate::api::Api;
use crate::http::negotiate;
use crate::http::options::Query;
use crate::http::respond::{self, HttpReply};
use crate::schemas::catalog::Catalog;
use crate::schemas::served::{KindOrigin, ServedKind};
use crate::status::{ApiError, ApiResult};
use extension_group::DescribedGroup;
use resource::{Described, OpenApiSubresource, SchemaSource};

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V2_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Rendered documents, compressed, by name; each with the hash of what it was made from.
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<HashMap<String, (String, Bytes)>>);

impl Documents {
    fn find(&self, name: &str, hash: &str) -> Option<Bytes> {
        let known = self.0.lock();
        known.get(name).filter(|(made_from, _)| made_from == hash).map(|(_, bytes)| bytes.clone())
    }

    fn keep(&self, name: &str, hash: &str, bytes: Bytes) {
        self.0.lock().insert(name.to_owned(), (hash.to_owned(), bytes));
    }
}

fn described(served: &ServedKind) -> Option<Described<'_>> {
    let source = match &served.origin {
        KindOrigin::BuiltIn(row) => {
            SchemaSource::BuiltIn(types::Kind::find(row.group, row.version, row.kind)?)
        }
        KindOrigin::Custom(custom) => SchemaSource::Custom(custom.raw_schema()),
    };
    let sub = |sub: &crate::schemas::served::Subresource| OpenApiSubresource {
        name: sub.name,
        kind: sub.kind,
        verbs: sub.verbs,
    };
    Some(Described {
        group: &served.group,
        version: &served.version,
        kind: &served.kind,
        list_kind: &served.list_kind,
        plural: &served.plural,
        namespaced: served.namespaced,
        verbs: served.verbs,
        subresources: served.subresources.iter().map(sub).collect(),
        source,
    })
}

/// Changes exactly when the document of these kinds does: built-in kinds are fixed by the
/// build, custom ones by their definition's spec.
fn hash<'a>(api: &Api, kinds: impl Iterator<Item = &'a Arc<ServedKind>>) -> String {
    let mut input = Sha512::new();
    input.update(api.settings.version.commit);
    for served in kinds {
        input.update([&served.group, "/", &served.version, "/", &served.plural].concat());
        if let Some(custom) = served.custom() {
            let metadata: Value =
                serde_json::from_slice(&custom.definition.item.metadata()).unwrap_or_default();
            input.update(metadata["uid"].to_string());
            input.update(metadata["generation"].to_string());
        }
    }
    input.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// The groups that extensions answer for, in each of their versions.
fn extension_groups(api: &Api) -> impl Iterator<Item = DescribedGroup> {
    api.extensions.groups.iter().flat_map(|group| {
        group.versions().iter().map(|version| DescribedGroup {
            name: group.name(),
            version,
            resources: group.resources().to_vec(),
        })
    })
}

/// `api/v1` or `apis/apps/v1`.
fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

pub(crate) async fn v3_index(api: &Api) -> ApiResult<HttpReply> {
    let catalog = api.catalog.load_full();
    let mut paths = Map::new();
    for group in catalog.groups() {
        for version in &group.versions {
            let path = path(&group.name, version);
            let hash = hash(api, catalog.of(&group.name, version));
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    for group in extension_groups(api) {
        let path = path(group.name, group.version);
        let hash = hash(api, std::iter::empty());
        let url = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    aggregation::with_v3(api, &mut paths);
    Ok(respond::json(StatusCode::OK, &json!({"paths": paths})))
}

pub(crate) async fn v3(
    api: &Api,
    wanted: &str,
    headers: &HeaderMap,
    query: &Query,
) -> ApiResult<HttpReply> {
    let catalog = api.catalog.load_full();
    let (group, version) = match wanted.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return Err(ApiError::unknown_resource()),
    };
    let mut extensions = extension_groups(api);
    let extension = extensions.find(|it| it.name == group && it.version == version);
    if extension.is_none() && catalog.of(group, version).next().is_none() {
        return Err(ApiError::unknown_resource());
    }
    let hash = hash(api, catalog.of(group, version));
    if let Some(asked) = query.get("hash")
        && asked != hash
    {
        let mut reply = respond::text(StatusCode::MOVED_PERMANENTLY, "");
        let url = format!("/openapi/v3/{wanted}?hash={hash}");
        if let Ok(url) = HeaderValue::from_str(&url) {
            reply.headers_mut().insert(LOCATION, url);
        }
        return Ok(reply);
    }
    let (group, version) = (group.to_owned(), version.to_owned());
    let zipped = rendered(api, wanted, &hash, move || {
        if let Some(extension) = extension {
            return serde_json::to_vec(&document::v3_of_extension(&extension)).unwrap_or_default();
        }
        let kinds: Vec<Described<'_>> =
            catalog.of(&group, &version).filter_map(|served| described(served)).collect();
        serde_json::to_vec(&document::v3(&group, &version, &kinds)).unwrap_or_default()
    })
    .await?;
    let mut reply = send(headers, "application/json", &hash, zipped)?;
    if query.has("hash") {
        // The address names the content: it never changes.
        let out = reply.headers_mut();
        out.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        let in_a_year = base::clock::now() + std::time::Duration::from_secs(365 * 86_400);
        let expires = in_a_year.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        if let Ok(expires) = HeaderValue::from_str(&expires) {
            out.insert(EXPIRES, expires);
        }
    }
    Ok(reply)
}

pub(crate) async fn v2(api: &Api, headers: &HeaderMap) -> ApiResult<HttpReply> {
    let mut protobuf = None;
    for clause in negotiate::clauses(headers) {
        protobuf = match clause.media {
            "*/*" | "application/*" | "application/json" => Some(false),
            media if media == V2_PROTOBUF || media == V2_PROTOBUF_OLD => Some(true),
            _ => continue,
        };
        break;
    }
    let protobuf =
        protobuf.ok_or_else(|| ApiError::not_acceptable(&["application/json", V2_PROTOBUF]))?;
    let catalog = api.catalog.load_full();
    let remotes = aggregation::documents_v2(api);
    let hash = hash_with(hash(api, catalog.all().iter()), &remotes);
    let server = api.settings.version.to_value()["gitVersion"].as_str().unwrap_or("").to_owned();
    let name = if protobuf { "v2.pb" } else { "v2" };
    let extensions: Vec<DescribedGroup> = extension_groups(api).collect();
    let zipped = rendered(api, name, &hash, move || {
        whole(&catalog, &extensions, &server, &remotes, protobuf)
    })
    .await?;
    send(headers, if protobuf { V2_PROTOBUF } else { "application/json" }, &hash, zipped)
}

/// The same hash if there is nothing of others in the document.
fn hash_with(own: String, remotes: &[Value]) -> String {
    if remotes.is_empty() {
        return own;
    }
    let mut input = Sha512::new();
    input.update(own);
    remotes.iter().for_each(|document| input.update(document.to_string()));
    input.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn whole(
    catalog: &Catalog,
    extensions: &[DescribedGroup],
    server: &str,
    remotes: &[Value],
    protobuf: bool,
) -> Vec<u8> {
    let kinds: Vec<Described<'_>> =
        catalog.all().iter().filter_map(|served| described(served)).collect();
    let mut document = document::v2(server, &kinds, extensions);
    // Our own definitions win where names meet.
    for remote in remotes {
        for part in ["paths", "definitions"] {
            let theirs = remote[part].as_object().into_iter().flatten();
            let Some(ours) = document[part].as_object_mut() else { continue };
            for (name, value) in theirs {
                ours.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    if protobuf {
        gnostic::encode(&document)
    } else {
        serde_json::to_vec(&document).unwrap_or_default()
    }
}

/// The compressed document, built away from the threads that serve requests.
async fn rendered(
    api: &Api,
    name: &str,
    hash: &str,
    build: impl FnOnce() -> Vec<u8> + Send + 'static,
) -> ApiResult<Bytes> {
    if let Some(known) = api.documents.find(name, hash) {
        return Ok(known);
    }
    let work = tokio::task::spawn_blocking(move || {
        let mut zip = GzEncoder::new(Vec::new(), Compression::default());
        zip.write_all(&build()).expect("writing to memory cannot fail");
        Bytes::from(zip.finish().expect("writing to memory cannot fail"))
    });
    let zipped = work.await.map_err(ApiError::internal)?;
    api.documents.keep(name, hash, zipped.clone());
    Ok(zipped)
}

fn send(
    headers: &HeaderMap,
    content_type: &'static str,
    hash: &str,
    zipped: Bytes,
) -> ApiResult<HttpReply> {
    let tag = format!("\"{hash}\"");
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut reply = if known == Some(&*tag) {
        respond::reply(StatusCode::NOT_MODIFIED, content_type, respond::full(""))
    } else if respond::accepts_gzip(headers) {
        let mut reply = respond::reply(StatusCode::OK, content_type, respond::full(zipped));
        reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        reply
    } else {
        let mut plain = Vec::new();
        GzDecoder::new(&zipped[..]).read_to_end(&mut plain).map_err(ApiError::internal)?;
        respond::reply(StatusCode::OK, content_type, respond::full(plain))
    };
    let out = reply.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        out.insert(ETAG, tag);
    }
    out.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    Ok(reply)
}
