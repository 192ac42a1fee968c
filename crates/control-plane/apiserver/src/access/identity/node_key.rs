//! The key of a node, which distinguishes the machine that joined from an earlier one of its name.

use auth::User;

use super::ClientCertificate;
use crate::access::authorize::node;
use crate::api::Api;
use crate::audit;
use crate::status::{ApiError, ApiResult};

/// A node is known by the key that it joined with. The certificate of a machine that was removed is
/// not good for another one that has its name.
pub(super) fn check_node_key(
    api: &Api,
    user: &User,
    certificate: &ClientCertificate,
) -> ApiResult<()> {
    let (Some(node), Some(nodes)) = (node::name(user), &api.extensions.nodes) else {
        return Ok(());
    };
    match nodes.key_pin(node, api) {
        Some(recorded) if recorded != certificate.key_pin => {
            audit::annotate("sheaf.io/former-node-certificate", || certificate.serial.clone());
            Err(ApiError::certificate_of_former_node(node, &certificate.serial))
        }
        _ => Ok(()),
    }
}
