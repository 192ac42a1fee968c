//! The only provider of logins by password, as Rancher's clients see it. Pure.

use serde_json::{Value, json};

use crate::error::SteveError;

pub(super) fn provider(base: &str) -> Value {
    let own = format!("{base}/localProviders/local");
    json!({
        "id": "local", "type": "localProvider", "baseType": "authProvider",
        "links": {"self": own}, "actions": {"login": format!("{own}?action=login")},
    })
}

/// Whether a login names this provider, or none.
pub(super) fn check_provider(kind: &str) -> Result<(), SteveError> {
    if matches!(kind, "" | "localProvider") {
        return Ok(());
    }
    let message = "type is not localProvider: there is no other provider";
    Err(SteveError::invalid("InvalidBodyContent", message))
}
