//! The claims of service-account tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::user::{
    EXTRA_CREDENTIAL_ID, EXTRA_NODE_NAME, EXTRA_NODE_UID, EXTRA_POD_NAME, EXTRA_POD_UID, User,
};

/// An object by name and uid, so that a later one of the same name is distinguished.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRef {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl ObjectRef {
    pub fn new(name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self { name: name.into(), uid: uid.into() }
    }
}

/// The claims of a token from the TokenRequest API. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundClaims {
    #[serde(default)]
    pub aud: Audiences,
    #[serde(default, deserialize_with = "whole_seconds")]
    pub exp: i64,
    #[serde(default, deserialize_with = "whole_seconds")]
    pub iat: i64,
    #[serde(default)]
    pub iss: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Kubernetes,
    #[serde(default, deserialize_with = "whole_seconds")]
    pub nbf: i64,
    #[serde(default)]
    pub sub: String,
}

/// The claims of a token besides the registered ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    #[serde(default)]
    pub namespace: String,
    /// A running machine, which upstream does not have.
    #[serde(rename = "virtualmachineinstance", default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<ObjectRef>,
    #[serde(default)]
    pub serviceaccount: ObjectRef,
    /// After this the holder should have fetched a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// The claims of a token that lives in a Secret. It never expires; deleting the
/// Secret revokes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyClaims {
    pub iss: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace", default)]
    pub namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name", default)]
    pub secret_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name", default)]
    pub service_account_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid", default)]
    pub service_account_uid: String,
    #[serde(default)]
    pub sub: String,
}

/// A JWT's `aud`: one text or a list of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audiences(pub Vec<String>);

impl Serialize for Audiences {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(output)
    }
}

impl<'de> Deserialize<'de> for Audiences {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum OneOrMany {
            One(String),
            Many(Vec<String>),
        }
        Ok(Self(match OneOrMany::deserialize(input)? {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }))
    }
}

/// RFC 7519 allows fractions of a second; they are not needed.
fn whole_seconds<'de, D: Deserializer<'de>>(input: D) -> Result<i64, D::Error> {
    let number = serde_json::Number::deserialize(input)?;
    let whole = number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, which is meant")]
        Some(float as i64)
    });
    whole.ok_or_else(|| serde::de::Error::custom("time is not a number of seconds"))
}

/// A token whose signature, times and audience are good.
///
/// The caller still has to check that the account, and the object that the token is bound to,
/// exist with the same uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verified {
    Bound {
        claims: Box<BoundClaims>,
        /// The audiences that the token and the verifier have in common.
        audiences: Vec<String>,
    },
    /// The caller also has to compare the token with the copy in its Secret.
    Legacy { claims: LegacyClaims, audiences: Vec<String> },
}

impl Verified {
    pub fn audiences(&self) -> &[String] {
        match self {
            Self::Bound { audiences, .. } | Self::Legacy { audiences, .. } => audiences,
        }
    }

    /// Namespace, name and uid of the service account.
    pub fn service_account(&self) -> (&str, &str, &str) {
        match self {
            Self::Bound { claims, .. } => {
                let account = &claims.kubernetes.serviceaccount;
                (&claims.kubernetes.namespace, &account.name, &account.uid)
            }
            Self::Legacy { claims, .. } => {
                (&claims.namespace, &claims.service_account_name, &claims.service_account_uid)
            }
        }
    }

    /// The user that the token speaks for, without the group of all authenticated users.
    pub fn user(&self) -> User {
        let (namespace, name, uid) = self.service_account();
        let mut user = User::service_account(namespace, name, uid);
        if let Self::Bound { claims, .. } = self {
            user.extra = extra(claims);
        }
        user
    }
}

fn extra(claims: &BoundClaims) -> BTreeMap<String, Vec<String>> {
    let mut extra = BTreeMap::new();
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            extra.insert(key.to_owned(), vec![value.to_owned()]);
        }
    };
    if !claims.jti.is_empty() {
        add(EXTRA_CREDENTIAL_ID, &format!("JTI={}", claims.jti));
    }
    if let Some(pod) = &claims.kubernetes.pod {
        add(EXTRA_POD_NAME, &pod.name);
        add(EXTRA_POD_UID, &pod.uid);
    }
    if let Some(node) = &claims.kubernetes.node {
        add(EXTRA_NODE_NAME, &node.name);
        add(EXTRA_NODE_UID, &node.uid);
    }
    extra
}
