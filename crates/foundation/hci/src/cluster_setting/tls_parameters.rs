//! The setting `ssl-parameters`: the protocols and ciphers of the API server. Pure.
//!
//! Names are those of OpenSSL, as upstream's ingress takes them. Only TLS 1.2 and 1.3 with ciphers
//! that authenticate what they encrypt are served here: older names are accepted and left out.

use serde::Deserialize;

/// Protocols that are served, by their names in the setting.
const PROTOCOLS: [&str; 2] = ["TLSv1.2", "TLSv1.3"];

/// Ciphers of TLS 1.3 that are served.
const CIPHERS_1_3: [&str; 3] =
    ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];

/// Ciphers of TLS 1.2 that are served.
const CIPHERS_1_2: [&str; 6] = [
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TlsSettingValue {
    /// Separated by spaces.
    protocols: String,
    /// Separated by colons.
    ciphers: String,
}

/// The protocols and ciphers that a server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsParameters {
    pub protocols: Vec<&'static str>,
    pub ciphers: Vec<&'static str>,
}

impl Default for TlsParameters {
    fn default() -> Self {
        Self {
            protocols: PROTOCOLS.to_vec(),
            ciphers: CIPHERS_1_3.into_iter().chain(CIPHERS_1_2).collect(),
        }
    }
}

impl TlsParameters {
    /// The protocols and ciphers that the value allows; `None` if no client could connect.
    pub fn parse(value: &str) -> Option<Self> {
        let own: TlsSettingValue = serde_json::from_str(value).unwrap_or_default();
        let protocols = own.protocols.split_whitespace();
        let protocols = named(&PROTOCOLS, &protocols.collect::<Vec<_>>());
        let ciphers: Vec<&str> = own.ciphers.split(':').map(str::trim).collect();
        // As with OpenSSL, a list without ciphers of TLS 1.3 leaves those as they are.
        let names_1_3 = ciphers.iter().any(|name| CIPHERS_1_3.contains(name));
        let of_1_3 = if names_1_3 { named(&CIPHERS_1_3, &ciphers) } else { CIPHERS_1_3.to_vec() };
        let of_1_2 = named(&CIPHERS_1_2, &ciphers);
        let is_served = |protocol: &&str| match *protocol {
            "TLSv1.3" => !of_1_3.is_empty(),
            _ => !of_1_2.is_empty(),
        };
        let protocols: Vec<&str> = protocols.into_iter().filter(is_served).collect();
        let has = |protocol: &str| protocols.contains(&protocol);
        let ciphers = of_1_3.into_iter().filter(|_| has("TLSv1.3"));
        let ciphers = ciphers.chain(of_1_2.into_iter().filter(|_| has("TLSv1.2"))).collect();
        (!protocols.is_empty()).then_some(Self { protocols, ciphers })
    }
}

/// Those of `all` that are named; all of them if nothing is.
fn named(all: &[&'static str], names: &[&str]) -> Vec<&'static str> {
    let is_empty = names.iter().all(|name| name.is_empty());
    all.iter().copied().filter(|own| is_empty || names.contains(own)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_leaves_what_it_names() {
        let all = TlsParameters::default();
        let only = |protocol, ciphers: &[&'static str]| TlsParameters {
            protocols: vec![protocol],
            ciphers: ciphers.to_vec(),
        };
        let rows = [
            ("", Some(all.clone())),
            ("{}", Some(all.clone())),
            (r#"{"protocols":"TLSv1.2 TLSv1.3"}"#, Some(all.clone())),
            (r#"{"protocols":"TLSv1.1 TLSv1.3"}"#, Some(only("TLSv1.3", &CIPHERS_1_3))),
            (r#"{"protocols":"TLSv1.2"}"#, Some(only("TLSv1.2", &CIPHERS_1_2))),
            (
                r#"{"protocols":"TLSv1.2","ciphers":"ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA"}"#,
                Some(only("TLSv1.2", &["ECDHE-RSA-AES128-GCM-SHA256"])),
            ),
            // No cipher of TLS 1.2 is left, and those of 1.3 stay.
            (r#"{"ciphers":"AES128-SHA"}"#, Some(only("TLSv1.3", &CIPHERS_1_3))),
            (
                r#"{"ciphers":"TLS_AES_128_GCM_SHA256"}"#,
                Some(only("TLSv1.3", &["TLS_AES_128_GCM_SHA256"])),
            ),
            (r#"{"protocols":"TLSv1 TLSv1.1"}"#, None),
            (r#"{"protocols":"TLSv1.2","ciphers":"AES128-SHA"}"#, None),
        ];
        for (value, expected) in rows {
            assert_eq!(TlsParameters::parse(value), expected, "{value}");
        }
    }
}
