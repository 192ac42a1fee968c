//! OpenAPI documents: built when somebody asks, kept compressed until the catalog changes.

use http::HeaderMap;

use crate::api::Api;
use crate::options::Query;
use crate::respond::Reply;
use crate::status::{ApiError, ApiResult};

/// Rendered documents.
#[derive(Debug, Default)]
pub(crate) struct Documents {}

pub(crate) async fn v2(_api: &Api, _headers: &HeaderMap) -> ApiResult<Reply> {
    Err(ApiError::unknown_resource())
}

pub(crate) async fn v3_index(_api: &Api) -> ApiResult<Reply> {
    Err(ApiError::unknown_resource())
}

pub(crate) async fn v3(
    _api: &Api,
    _group_version: &str,
    _headers: &HeaderMap,
    _query: &Query,
) -> ApiResult<Reply> {
    Err(ApiError::unknown_resource())
}
