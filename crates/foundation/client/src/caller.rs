//! Requests with the identity of another user (impersonation), so that the API server authorizes
//! them with that user's rights.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters of a key that a header name may have.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// The user who sent a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A user whom the headers of impersonation cannot carry.
#[derive(Debug, thiserror::Error)]
#[error("user {name:?} cannot be acted for: names, groups and extra values have to be ASCII")]
pub struct CallerError {
    name: String,
}

impl Caller {
    pub fn is_anonymous(&self) -> bool {
        self.name.is_empty() || self.name == "system:anonymous"
    }

    /// The headers that make a request one of this user.
    pub fn headers(&self) -> Result<HeaderMap, CallerError> {
        let refused = || CallerError { name: self.name.clone() };
        // An empty or unreadable name would make the request one of this process.
        if self.name.is_empty() || self.groups.is_empty() {
            return Err(refused());
        }
        // The server reads only values that are ASCII, and takes others for absent.
        let value = |text: &str| {
            let value = HeaderValue::from_str(text).ok();
            value.filter(|value| value.to_str().is_ok()).ok_or_else(refused)
        };
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-user", value(&self.name)?);
        for group in &self.groups {
            headers.append("impersonate-group", value(group)?);
        }
        if !self.uid.is_empty() {
            headers.insert("impersonate-uid", value(&self.uid)?);
        }
        for (key, texts) in &self.extra {
            let name = format!("impersonate-extra-{}", utf8_percent_encode(key, KEY));
            let name = HeaderName::try_from(name).map_err(|_| refused())?;
            for text in texts {
                headers.append(name.clone(), value(text)?);
            }
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_made_in_the_name_of_its_sender() {
        let mut caller = Caller {
            name: "jane".into(),
            uid: "7".into(),
            groups: vec!["dev".into(), "system:authenticated".into()],
            extra: BTreeMap::new(),
        };
        caller.extra.insert("a.io/key".into(), vec!["one".into(), "two".into()]);
        let headers = caller.headers().unwrap();
        assert_eq!(headers["impersonate-user"], "jane");
        assert_eq!(headers["impersonate-uid"], "7");
        assert_eq!(headers.get_all("impersonate-group").iter().count(), 2);
        assert_eq!(headers.get_all("impersonate-extra-a.io%2fkey").iter().count(), 2);
    }

    #[test]
    fn no_request_is_ever_made_in_the_name_of_this_process() {
        let group = || vec!["g".to_owned()];
        for caller in [
            Caller::default(),
            Caller { groups: group(), ..Caller::default() },
            Caller { name: "jane".into(), ..Caller::default() },
            Caller { name: "jané".into(), groups: group(), ..Caller::default() },
            Caller { name: "a\nb".into(), groups: group(), ..Caller::default() },
            Caller { name: "a".into(), groups: vec!["b\r".into()], ..Caller::default() },
        ] {
            assert!(caller.headers().is_err(), "{caller:?}");
        }
    }
}
