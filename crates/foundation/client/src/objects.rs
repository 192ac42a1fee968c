//! Requests on objects of any kind, of which only the metadata matters.

use kube::Client;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams};
use kube::core::Request;
use serde_json::Value;

use crate::catalog::CatalogKind;
use crate::meta::{Meta, MetadataPage, Partial};

/// Objects per page; see [`list`].
const PAGE: u32 = 500;

/// The metadata of one object; nothing if it does not exist.
pub async fn get(
    client: &Client,
    kind: &CatalogKind,
    namespace: &str,
    name: &str,
) -> Result<Option<Meta>, kube::Error> {
    let request = Request::new(kind.path(namespace))
        .get_metadata(name, &GetParams::default())
        .map_err(kube::Error::BuildRequest)?;
    Ok(present(client.request::<Partial>(request).await)?.map(|object| object.metadata))
}

/// The metadata of all objects of a kind in `namespace`, read page by page.
pub async fn list(
    client: &Client,
    kind: &CatalogKind,
    namespace: &str,
) -> Result<Vec<Meta>, kube::Error> {
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let request = Request::new(kind.path(namespace))
            .list_metadata(&params)
            .map_err(kube::Error::BuildRequest)?;
        let page: MetadataPage = client.request(request).await?;
        found.extend(page.items.into_iter().map(|object| object.metadata));
        match page.metadata.r#continue.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Deletes one object; one that does not exist is as good.
pub async fn delete(
    client: &Client,
    kind: &CatalogKind,
    namespace: &str,
    name: &str,
    params: &DeleteParams,
) -> Result<(), kube::Error> {
    let request = Request::new(kind.path(namespace))
        .delete(name, params)
        .map_err(kube::Error::BuildRequest)?;
    present(client.request_text(request).await).map(drop)
}

/// Deletes all objects of a kind in `namespace`.
pub async fn delete_all(
    client: &Client,
    kind: &CatalogKind,
    namespace: &str,
    params: &DeleteParams,
) -> Result<(), kube::Error> {
    let request = Request::new(kind.path(namespace))
        .delete_collection(params, &ListParams::default())
        .map_err(kube::Error::BuildRequest)?;
    client.request_text(request).await.map(drop)
}

/// Applies a JSON merge patch, which every kind understands; an object that does not exist
/// is left so.
pub async fn merge(
    client: &Client,
    kind: &CatalogKind,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> Result<(), kube::Error> {
    let request = Request::new(kind.path(namespace))
        .patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch))
        .map_err(kube::Error::BuildRequest)?;
    present(client.request_text(request).await).map(drop)
}

fn present<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(failure) => Err(failure),
    }
}
