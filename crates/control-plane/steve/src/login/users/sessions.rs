//! The users of sessions: local ones, and those of a provider, who are made at their first login.

use client::Caller;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::{GROUP, JSON, UserError, Users, code};
use crate::login::oidc::{OidcIdentity, user_name};

impl Users {
    /// For the TokenReview of a login.
    pub(in crate::login) fn client(&self) -> &Client {
        &self.client
    }

    /// The user of an identity at a provider, who is made at their first login.
    pub(in crate::login) async fn of_identity(
        &self,
        identity: &OidcIdentity,
    ) -> Result<Value, UserError> {
        let name = identity.user_name();
        let new = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "User",
            "metadata": {"name": name}, "username": identity.name, "displayName": identity.name,
            "enabled": true, "principalIds": [identity.principal()],
        });
        let path = format!("{GROUP}/users");
        let user = match self.get(&name).await? {
            Some(user) => user,
            None => match self.send(Method::POST, &path, JSON, Some(&new)).await {
                // Two logins at once.
                Err(UserError::Api(error)) if code(&error) == Some(409) => {
                    self.get(&name).await?.ok_or_else(|| UserError::Absent(name.clone()))?
                }
                outcome => outcome?,
            },
        };
        // Its hash is short: another identity, or a local user, may have the name.
        if identity.owns(&user) { Ok(user) } else { Err(UserError::Exists(name)) }
    }

    /// The user of a caller's session, local or of a provider. A user of the same name from
    /// elsewhere, by a certificate, is another one: only a token brings the uid along.
    pub(crate) async fn of_session(&self, caller: &Caller) -> Result<Option<Value>, UserError> {
        for name in [&caller.name, &user_name(&caller.name)] {
            if let Some(user) = self.get(name).await?
                && user["metadata"]["uid"] == *caller.uid
            {
                return Ok(Some(user));
            }
        }
        Ok(None)
    }
}
