//! Flags as Go programs read them, and which of kube-apiserver's are known here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How a flag is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlagKind {
    /// With one value; the last one counts.
    Text,
    /// With values separated by commas, or repeated.
    List,
    /// With or without a value.
    Switch,
    /// Known, with a value, and without meaning here: nothing is lost by it.
    Harmless,
    HarmlessSwitch,
}

use FlagKind::{Harmless, HarmlessSwitch, List, Switch, Text};

/// The known flags, in the order of the help.
const FLAGS: &[(&str, FlagKind, &str)] = &[
    ("etcd-servers", List, "URLs of etcd"),
    ("etcd-cafile", Text, "CA that etcd's certificates are checked against"),
    ("etcd-certfile", Text, "client certificate for etcd"),
    ("etcd-keyfile", Text, "key of the client certificate for etcd"),
    ("etcd-prefix", Text, "what all keys in etcd begin with"),
    ("bind-address", Text, "address to serve HTTPS on"),
    ("secure-port", Text, "port to serve HTTPS on"),
    ("advertise-address", Text, "address that clients reach this server by"),
    ("cert-dir", Text, "where apiserver.crt and apiserver.key are, or are made"),
    ("tls-cert-file", Text, "certificate to serve with"),
    ("tls-private-key-file", Text, "key of the certificate to serve with"),
    ("client-ca-file", Text, "CA whose client certificates name users"),
    ("requestheader-client-ca-file", Text, "CA of those who may speak for users"),
    ("requestheader-allowed-names", List, "common names of those who may; all if empty"),
    ("requestheader-username-headers", List, "headers that name the user"),
    ("requestheader-uid-headers", List, "headers with the uid of the user"),
    ("requestheader-group-headers", List, "headers with the groups of the user"),
    ("requestheader-extra-headers-prefix", List, "what headers with more begin with"),
    ("service-account-issuer", List, "who issues tokens; the first one signs"),
    ("service-account-key-file", List, "keys that tokens are verified with"),
    ("service-account-signing-key-file", Text, "key that tokens are signed with"),
    ("api-audiences", List, "audiences of tokens for this server"),
    ("service-cluster-ip-range", List, "range from which services get their addresses"),
    ("authorization-mode", List, "AlwaysAllow, AlwaysDeny, Node, RBAC"),
    ("anonymous-auth", Switch, "whether requests without credentials are system:anonymous"),
    ("token-auth-file", Text, "file of static tokens"),
    ("enable-admission-plugins", List, "admission plugins that are on"),
    ("disable-admission-plugins", List, "admission plugins that are off"),
    ("audit-policy-file", Text, "which requests are written down, and how much of them"),
    ("audit-log-path", Text, "file of audit events; - is standard output"),
    ("audit-log-maxage", Text, "days that old audit logs are kept"),
    ("audit-log-maxbackup", Text, "old audit logs that are kept"),
    ("audit-log-maxsize", Text, "megabytes after which a new audit log is begun"),
    ("audit-webhook-config-file", Text, "kubeconfig of a server that takes audit events"),
    ("audit-webhook-batch-buffer-size", Text, "audit events that may wait for that server"),
    ("audit-webhook-batch-max-size", Text, "audit events sent at once"),
    ("audit-webhook-batch-max-wait", Text, "how long to gather audit events"),
    ("audit-webhook-initial-backoff", Text, "pause before audit events are sent again"),
    ("encryption-provider-config", Text, "what is encrypted at rest, and with which keys"),
    ("enable-bootstrap-token-auth", Switch, "whether machines join with tokens from secrets"),
    ("oidc-issuer-url", Text, "issuer whose tokens are believed"),
    ("oidc-client-id", Text, "audience of those tokens"),
    ("oidc-username-claim", Text, "claim that names the user"),
    ("oidc-username-prefix", Text, "what is put in front of user names"),
    ("oidc-groups-claim", Text, "claim that lists the user's groups"),
    ("oidc-groups-prefix", Text, "what is put in front of groups"),
    ("oidc-required-claim", List, "claims that a token must have, as NAME=VALUE"),
    ("oidc-signing-algs", List, "algorithms that tokens may be signed with"),
    ("oidc-ca-file", Text, "CA that the issuer's certificate is checked against"),
    ("event-ttl", Text, "how long events are kept"),
    ("max-requests-inflight", Text, "requests that read, at once"),
    ("max-mutating-requests-inflight", Text, "requests that write, at once"),
    ("v", Text, "how much is logged"),
    ("audit-log-format", Harmless, ""),
    ("audit-log-mode", Harmless, ""),
    ("audit-webhook-mode", Harmless, ""),
    ("allow-privileged", HarmlessSwitch, ""),
    ("apiserver-count", Harmless, ""),
    ("contention-profiling", HarmlessSwitch, ""),
    ("default-watch-cache-size", Harmless, ""),
    ("delete-collection-workers", Harmless, ""),
    ("enable-garbage-collector", HarmlessSwitch, ""),
    ("enable-priority-and-fairness", HarmlessSwitch, ""),
    ("endpoint-reconciler-type", Harmless, ""),
    ("etcd-compaction-interval", Harmless, ""),
    ("feature-gates", Harmless, ""),
    ("kubelet-certificate-authority", Harmless, ""),
    ("kubelet-client-certificate", Harmless, ""),
    ("kubelet-client-key", Harmless, ""),
    ("kubelet-preferred-address-types", Harmless, ""),
    ("logging-format", Harmless, ""),
    ("logtostderr", HarmlessSwitch, ""),
    ("profiling", HarmlessSwitch, ""),
    ("runtime-config", Harmless, ""),
    ("storage-backend", Harmless, ""),
    ("storage-media-type", Harmless, ""),
    ("vmodule", Harmless, ""),
    ("watch-cache", HarmlessSwitch, ""),
    ("watch-cache-sizes", Harmless, ""),
];

/// The error in a command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlagError {
    #[error("--{flag} must be specified")]
    Missing { flag: &'static str },
    #[error("--{flag} needs a value")]
    NoValue { flag: String },
    #[error("--{flag} {value:?} is invalid: {wanted}")]
    Value { flag: &'static str, value: String, wanted: &'static str },
    #[error("unexpected argument {argument:?}")]
    Stray { argument: String },
}

/// A command line, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    values: BTreeMap<&'static str, Vec<String>>,
    /// Flags that are not known here.
    pub(crate) unknown: Vec<String>,
    pub(crate) wants_help: bool,
    pub(crate) wants_version: bool,
}

impl Parsed {
    pub(crate) fn parse(words: Vec<String>) -> Result<Self, FlagError> {
        let mut parsed = Self::default();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                return Err(FlagError::Stray { argument: word });
            };
            let (name, given) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            // Both spellings are one flag.
            let name = name.replace('_', "-");
            match name.as_str() {
                "help" | "h" => parsed.wants_help = true,
                "version" => parsed.wants_version = true,
                _ => {
                    let mut next = || words.next_if(|word| !word.starts_with('-'));
                    parsed.take(name, given, &mut next)?;
                }
            }
        }
        Ok(parsed)
    }

    fn take(
        &mut self,
        name: String,
        given: Option<String>,
        next: &mut dyn FnMut() -> Option<String>,
    ) -> Result<(), FlagError> {
        let Some((known, kind, _)) = FLAGS.iter().find(|(known, ..)| *known == name) else {
            // There are no arguments beside flags, so what follows belongs to it.
            if given.is_none() {
                let _ = next();
            }
            self.unknown.push(name);
            return Ok(());
        };
        let value = match kind {
            Switch | HarmlessSwitch => given.unwrap_or_else(|| "true".to_owned()),
            Text | List | Harmless => {
                given.or_else(next).ok_or(FlagError::NoValue { flag: name })?
            }
        };
        let values = self.values.entry(known).or_default();
        match kind {
            List => values.extend(
                value.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned),
            ),
            Text | Switch | Harmless | HarmlessSwitch => *values = vec![value],
        }
        Ok(())
    }

    pub(crate) fn list(&self, flag: &'static str) -> Vec<String> {
        debug_assert!(FLAGS.iter().any(|(known, ..)| *known == flag), "{flag} is not in the table");
        self.values.get(flag).cloned().unwrap_or_default()
    }

    pub(crate) fn text(&self, flag: &'static str) -> Option<&str> {
        debug_assert!(FLAGS.iter().any(|(known, ..)| *known == flag), "{flag} is not in the table");
        self.values.get(flag)?.last().map(String::as_str).filter(|text| !text.is_empty())
    }

    pub(crate) fn path(&self, flag: &'static str) -> Option<PathBuf> {
        self.text(flag).map(PathBuf::from)
    }

    pub(crate) fn flag(&self, flag: &'static str, usual: bool) -> Result<bool, FlagError> {
        match self.text(flag) {
            None => Ok(usual),
            Some("true" | "True" | "TRUE" | "1" | "t" | "T") => Ok(true),
            Some("false" | "False" | "FALSE" | "0" | "f" | "F") => Ok(false),
            Some(other) => {
                Err(FlagError::Value { flag, value: other.to_owned(), wanted: "true or false" })
            }
        }
    }

    pub(crate) fn parse_maybe<T: FlagValue>(
        &self,
        flag: &'static str,
    ) -> Result<Option<T>, FlagError> {
        let Some(text) = self.text(flag) else { return Ok(None) };
        let wrong = || FlagError::Value { flag, value: text.to_owned(), wanted: T::WANTED };
        text.parse().map(Some).map_err(|_| wrong())
    }

    pub(crate) fn number<T: FlagValue>(
        &self,
        flag: &'static str,
        usual: T,
    ) -> Result<T, FlagError> {
        Ok(self.parse_maybe(flag)?.unwrap_or(usual))
    }

    pub(crate) fn duration(
        &self,
        flag: &'static str,
        usual: Duration,
    ) -> Result<Duration, FlagError> {
        let Some(text) = self.text(flag) else { return Ok(usual) };
        let wanted = "a duration like 1h30m";
        duration(text).ok_or(FlagError::Value { flag, value: text.to_owned(), wanted })
    }
}

/// The expected form of a value of this type.
pub(crate) trait FlagValue: FromStr {
    const WANTED: &'static str;
}

impl FlagValue for u16 {
    const WANTED: &'static str = "a number up to 65535";
}

impl FlagValue for u8 {
    const WANTED: &'static str = "a number up to 255";
}

impl FlagValue for u32 {
    const WANTED: &'static str = "a number";
}

impl FlagValue for std::net::IpAddr {
    const WANTED: &'static str = "an IP address";
}

/// `1h30m`, `90s`, `300ms`; a bare zero.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let units =
            [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
        let (unit, seconds) = units.iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        total += amount * seconds;
    }
    Duration::try_from_secs_f64(total).ok().filter(|_| !text.is_empty())
}

/// The flags, for `--help`.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Run the API server alone, started as kube-apiserver is: without controllers, without an\n\
         agent, and without the kinds of virtual machines. Link this program to the name\n\
         kube-apiserver to have it behave so by itself.\n\n\
         Usage: sheaf kube-apiserver --etcd-servers=URL,… [flags]\n\nFlags:\n",
    );
    for (name, _, what) in FLAGS.iter().filter(|(_, _, what)| !what.is_empty()) {
        let dashes = if name.len() == 1 { "-" } else { "--" };
        let _ = writeln!(text, "  {:<40} {what}", format!("{dashes}{name}"));
    }
    text.push_str("\nOther flags of kube-apiserver are accepted and have no effect.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Parsed {
        Parsed::parse(line.split_whitespace().map(str::to_owned).collect()).unwrap()
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        let parsed =
            parse("--etcd-servers=a,b --etcd-servers c -v=3 --cert-dir x --anonymous-auth");
        assert_eq!(parsed.list("etcd-servers"), ["a", "b", "c"]);
        assert_eq!((parsed.text("v"), parsed.text("cert-dir")), (Some("3"), Some("x")));
        assert_eq!(parsed.flag("anonymous-auth", false), Ok(true));
        assert_eq!(parsed.flag("watch-cache", false), Ok(false));
    }

    #[test]
    fn unknown_flags_are_remembered_and_their_values_skipped() {
        let parsed = parse("--new-thing=1 --other value --switch --v 2 --feature-gates=A=true");
        assert_eq!(parsed.unknown, ["new-thing", "other", "switch"]);
        assert_eq!(parsed.text("v"), Some("2"));
    }

    #[test]
    fn durations_are_those_of_go() {
        for (text, expected) in [
            ("1h0m0s", Some(3600.0)),
            ("1.5h", Some(5400.0)),
            ("250ms", Some(0.25)),
            ("0", Some(0.0)),
            ("", None),
            ("5", None),
            ("h", None),
            ("3d", None),
        ] {
            assert_eq!(duration(text).map(|d| d.as_secs_f64()), expected, "{text:?}");
        }
    }
}
