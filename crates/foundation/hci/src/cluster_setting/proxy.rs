//! The setting `http-proxy`: the proxy of requests that leave the cluster. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The proxy of requests to the outside; an empty text is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpProxy {
    /// URL of the proxy of `http://` addresses.
    pub http_proxy: String,
    /// URL of the proxy of `https://` addresses.
    pub https_proxy: String,
    /// Hosts, domains, addresses and ranges that are reached without a proxy, separated by commas.
    pub no_proxy: String,
}

impl HttpProxy {
    /// The proxy in the value of the setting; none if it cannot be read.
    pub fn parse(value: &str) -> Self {
        serde_json::from_str(value).unwrap_or_default()
    }

    /// Whether the value says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an address is reached without a proxy.
    pub fn excludes(&self, address: IpAddr) -> bool {
        self.no_proxy.split(',').map(str::trim).any(|entry| {
            entry == "*"
                || entry.parse().is_ok_and(|own: IpAddr| own == address)
                || entry.parse().is_ok_and(|range: IpNet| range.contains(&address))
        })
    }
}

/// Why a value cannot be used.
pub(super) fn http_proxy(fields: &Map<String, Value>) -> Result<(), String> {
    let proxy: HttpProxy = serde_json::from_value(Value::Object(fields.clone()))
        .map_err(|error| format!("failed to parse http-proxy: {error}"))?;
    let urls = [("httpProxy", &proxy.http_proxy), ("httpsProxy", &proxy.https_proxy)];
    for (name, url) in urls {
        let host = ["http://", "https://"].iter().find_map(|scheme| url.strip_prefix(scheme));
        let has_host = host.is_some_and(|rest| !rest.trim_matches('/').is_empty());
        if !url.is_empty() && (!has_host || url.contains(char::is_whitespace)) {
            return Err(format!(
                "{name}: {url:?} is not possible: it has to be a URL as http://HOST:PORT"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_setting::check;

    #[test]
    fn proxies_are_urls() {
        let rows = [
            (r#"{}"#, ""),
            (r#"{"httpProxy":"http://proxy:3128","httpsProxy":"https://u:p@10.0.0.1"}"#, ""),
            (r#"{"httpProxy":"proxy:3128"}"#, "httpProxy: \"proxy:3128\" is not possible"),
            (r#"{"httpsProxy":"http://"}"#, "httpsProxy: \"http://\" is not possible"),
            (r#"{"httpsProxy":"http://a b"}"#, "httpsProxy"),
            (r#"{"noProxy":["a"]}"#, "failed to parse http-proxy"),
        ];
        for (value, expected) in rows {
            let found = check("http-proxy", value).err().unwrap_or_default();
            let fits =
                if expected.is_empty() { found.is_empty() } else { found.contains(expected) };
            assert!(fits, "{value}: {found:?}");
        }
    }

    #[test]
    fn addresses_and_ranges_are_excluded() {
        let no_proxy = "localhost, 192.0.2.7,10.0.0.0/8,fd00::/8,.cluster.local".to_owned();
        let proxy = HttpProxy { no_proxy, ..HttpProxy::default() };
        let rows =
            [("192.0.2.7", true), ("192.0.2.8", false), ("10.4.5.6", true), ("fd00::1", true)];
        for (address, expected) in rows {
            assert_eq!(proxy.excludes(address.parse().unwrap()), expected, "{address}");
        }
    }
}
