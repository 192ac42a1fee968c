//! GET of one object and of lists, from memory.

use std::time::Duration;

use base::clock;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use store::{Range, Revision};

use crate::api::ObjectEntry;
use crate::http::negotiate::{Encoding, ResponseForm};
use crate::http::options::{self, Freshness, ListOptions};
use crate::http::page::{self, Position};
use crate::http::respond::{self, HttpReply};
use crate::http::verb_result::{VerbResult, list_meta};
use crate::schemas::conversion;
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::selection::Selection;
use crate::verbs::table;

/// How long a read waits for a revision that this server has not seen yet.
const REVISION_WAIT_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) async fn get(call: &Call<'_>) -> ApiResult<VerbResult> {
    let freshness = match options::revision(call.query)? {
        None => Freshness::Latest,
        Some(0) => Freshness::Any,
        Some(revision) => Freshness::NotOlderThan(revision),
    };
    catch_up(call, freshness).await?;
    let key = call.served.key(call.namespace(), call.path.name);
    match call.api.store.get(&call.served.table, &key) {
        Some(entry) => {
            let entry = conversion::shown_one(call.api, &call.served, entry).await?;
            Ok(VerbResult::ok(entry))
        }
        None => Err(ApiError::not_found(call.served.subject(call.path.name))),
    }
}

/// Waits until what is in memory is as fresh as was asked for.
pub(crate) async fn catch_up(call: &Call<'_>, freshness: Freshness) -> ApiResult<()> {
    let store = &call.api.store;
    match freshness {
        Freshness::Any => Ok(()),
        Freshness::Latest => match store.fence().await {
            Ok(_) => Ok(()),
            Err(error) => Err(ApiError::unavailable(format!(
                "the store cannot confirm the latest state: {}",
                base::Chain(&error)
            ))),
        },
        Freshness::NotOlderThan(wanted) | Freshness::Exact(wanted) => {
            if store.reached(Revision::new(wanted), REVISION_WAIT_TIMEOUT).await {
                return Ok(());
            }
            Err(ApiError::too_large_resource_version(wanted, store.revision().get()))
        }
    }
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct ListPage {
    pub(crate) entries: Vec<ObjectEntry>,
    pub(crate) revision: u64,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

pub(crate) async fn page(call: &Call<'_>, options: &ListOptions) -> ApiResult<ListPage> {
    let selection = Selection::new(&call.served, options)?.within(call.namespace());
    let now = clock::now().as_second();
    let mut from = Position { revision: None, after: String::new(), begun: now };
    if let Some(token) = &options.continue_token {
        if options.revision.is_some_and(|revision| revision != 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let position = page::decode(token, &selection.prefix)?;
        if position.is_expired(now) {
            return Err(expired(Some(&position.after), &selection.prefix));
        }
        // Going on with what is current begins a new list.
        let begun = if position.revision.is_some() { position.begun } else { now };
        from = Position { begun, ..position };
    } else if let Freshness::Exact(revision) = options.freshness {
        from.revision = Some(revision);
    }
    match from.revision {
        Some(revision) => catch_up(call, Freshness::NotOlderThan(revision)).await?,
        None => catch_up(call, options.freshness).await?,
    }
    // A single name needs no scan.
    if let (Some(name), None, "") = (options.fields.name(), from.revision, &*from.after)
        && (!call.served.namespaced || !call.namespace().is_empty())
    {
        return one(call, &selection, name).await;
    }
    collect(call, options, &selection, from).await
}

async fn one(call: &Call<'_>, selection: &Selection, name: &str) -> ApiResult<ListPage> {
    let revision = call.api.store.revision().get();
    let key = call.served.key(call.namespace(), name);
    let found = call.api.store.get(&call.served.table, &key);
    let found = found.into_iter().collect();
    let entries = selection.select(call.api, &call.served, found).await?;
    let newest = entries.first().map_or(0, |entry| entry.revision.get());
    Ok(ListPage { entries, revision: revision.max(newest), token: None, remaining: None })
}

async fn collect(
    call: &Call<'_>,
    options: &ListOptions,
    selection: &Selection,
    from: Position,
) -> ApiResult<ListPage> {
    let mut at = from.revision;
    let mut after = Some(from.after).filter(|after| !after.is_empty());
    // Served from memory, "any version" is not worth paging; upstream does the same.
    let limit = options.limit.filter(|_| options.freshness != Freshness::Any || after.is_some());
    let mut entries: Vec<ObjectEntry> = Vec::new();
    loop {
        let range = Range {
            prefix: &selection.prefix,
            after: after.as_deref(),
            limit: limit.map(|limit| limit - entries.len()),
            at: at.map(Revision::new),
        };
        let found = call
            .api
            .store
            .list(&call.served.table, range)
            .map_err(|_| expired(after.as_deref(), &selection.prefix))?;
        at = Some(found.revision.get());
        let (more, remaining) = (found.has_more(), found.remaining);
        let revision = found.revision.get();
        let last = found.entries.last().map(|entry| entry.name.to_string());
        entries.extend(selection.select(call.api, &call.served, found.entries).await?);
        let full = limit.is_some_and(|limit| entries.len() >= limit);
        match last {
            Some(last) if more && !full => after = Some(last),
            Some(last) if more => {
                let position = Position { revision: at, after: last, begun: from.begun };
                return Ok(ListPage {
                    entries,
                    revision,
                    token: Some(page::encode(&position, &selection.prefix)),
                    remaining: selection.is_everything().then_some(remaining),
                });
            }
            _ => {
                return Ok(ListPage { entries, revision, token: None, remaining: None });
            }
        }
    }
}

/// The revision was compacted. A client that was paging may continue at the current state, with
/// the token in this error.
fn expired(after: Option<&str>, prefix: &str) -> ApiError {
    match after {
        None => ApiError::expired("The resourceVersion for the provided list is too old."),
        Some(after) => {
            let position = Position { revision: None, after: after.to_owned(), begun: 0 };
            ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            )
            .with_continue(page::encode(&position, prefix))
        }
    }
}

pub(crate) async fn list(call: &Call<'_>, options: &ListOptions) -> ApiResult<HttpReply> {
    let mut page = page(call, options).await?;
    // Metadata is shown as stored: a conversion changes at most labels and annotations, and
    // clients that list metadata of everything must not depend on webhooks.
    if !matches!(call.wanted.form, ResponseForm::Metadata(_)) {
        page.entries = conversion::shown(call.api, &call.served, page.entries).await?;
    }
    let encoding = call.wanted.encoding;
    match call.wanted.form {
        ResponseForm::Table(version) => {
            let objects = page.entries.iter().map(|entry| call.served.live(entry));
            let meta = list_meta(page.revision, page.token.as_deref(), page.remaining);
            let include = table::include(call.query);
            let bytes = table::of_list(&call.served, include, objects, meta, version);
            Ok(send(call, encoding, bytes.len(), std::iter::once(Bytes::from(bytes))))
        }
        ResponseForm::Object => {
            let kind = (&*call.served.list_kind, call.served.api_version());
            let items: Vec<[Bytes; 2]> =
                page.entries.iter().map(|entry| list_item(&call.served, entry)).collect();
            Ok(send_list(call, kind, &page, items))
        }
        ResponseForm::Metadata(version) => {
            let head = Bytes::from(format!(
                "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":"
            ));
            let items: Vec<[Bytes; 2]> = page
                .entries
                .iter()
                .map(|entry| {
                    let tail = [entry.item.metadata().as_ref(), b"}"].concat();
                    [head.clone(), tail.into()]
                })
                .collect();
            let kind = ("PartialObjectMetadataList", format!("meta.k8s.io/{version}"));
            Ok(send_list(call, kind, &page, items))
        }
    }
}

/// An item of a list, in two parts so that stored bytes need no copy.
fn list_item(served: &ServedKind, entry: &ObjectEntry) -> [Bytes; 2] {
    if !served.reads_verbatim(entry.revision) {
        let object = served.live(entry);
        return [Bytes::new(), crate::verbs::item::encode_for_client(&object).into()];
    }
    if served.is_custom() {
        return [Bytes::new(), entry.item.bytes().clone()];
    }
    // Items of typed lists carry neither apiVersion nor kind.
    [Bytes::from_static(b"{"), entry.item.tail()]
}

fn send_list(
    call: &Call<'_>,
    (kind, version): (&str, String),
    page: &ListPage,
    items: Vec<[Bytes; 2]>,
) -> HttpReply {
    let mut meta = list_meta(page.revision, page.token.as_deref(), page.remaining);
    // Lists without a type of their own always say how they go on.
    if call.served.is_custom() && page.token.is_none() && kind != "PartialObjectMetadataList" {
        meta["continue"] = "".into();
    }
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{meta},\"items\":[",
        Value::from(kind),
        Value::from(version)
    );
    let size = items.iter().flatten().map(Bytes::len).sum();
    let separated = items.into_iter().enumerate().flat_map(|(index, [first, second])| {
        let comma = if index == 0 { Bytes::new() } else { Bytes::from_static(b",") };
        [comma, first, second]
    });
    let parts = std::iter::once(Bytes::from(head))
        .chain(separated)
        .chain(std::iter::once(Bytes::from_static(b"]}")));
    send(call, call.wanted.encoding, size, parts)
}

fn send(
    call: &Call<'_>,
    encoding: Encoding,
    size: usize,
    parts: impl Iterator<Item = Bytes> + Send + 'static,
) -> HttpReply {
    if encoding == Encoding::Json {
        return respond::large_json(call.headers, size, parts);
    }
    let whole: Vec<u8> = parts.flat_map(|part| part.to_vec()).collect();
    respond::object(StatusCode::OK, encoding, whole.into())
}
