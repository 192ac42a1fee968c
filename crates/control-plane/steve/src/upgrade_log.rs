//! The archives of an upgrade's logs, which Harvester collects with an add-on. Here the logs of an
//! upgrade are those of the nodes: both requests are refused, and say where the logs are.

use client::CatalogKind;

use crate::action::ActionTarget;
use crate::error::SteveError;
use crate::objects::ResourceCall;
use crate::reply::SteveResult;
use crate::request::RequestHead;

const INSTEAD: &str =
    "upgrade logs are not collected: create a support bundle, which has the logs of all nodes";

pub(crate) fn is_log(kind: &CatalogKind) -> bool {
    kind.is("harvesterhci.io", "upgradelogs")
}

/// `?action=generate`.
pub(crate) async fn generate(call: &ResourceCall<'_>, target: ActionTarget<'_>) -> SteveResult {
    call.session.get(target.path).await?;
    Err(refusal(INSTEAD.to_owned()))
}

/// The link `download`, with the parameter `archiveName`.
pub(crate) async fn download(
    call: &ResourceCall<'_>,
    asked: &RequestHead,
    path: &str,
) -> SteveResult {
    if !asked.is_read() {
        return Err(SteveError::method_not_allowed(&asked.parts.method));
    }
    let log = call.session.get(path).await?;
    let text = |field: &str| log["metadata"][field].as_str().unwrap_or_default();
    let archive = asked.parameter("archiveName").unwrap_or_default();
    Err(refusal(format!(
        "the archive ({archive}) of upgrade resource ({}/{}) is not ready yet: {INSTEAD}",
        text("namespace"),
        text("name")
    )))
}

fn refusal(message: String) -> SteveError {
    SteveError { is_text: true, ..SteveError::invalid("InvalidState", message) }
}
