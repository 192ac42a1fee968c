//! The command line of kube-apiserver, for those who start us in its place.
//!
//! Its flags are read as upstream reads them: `--name=value` or `--name value`, lists by
//! commas or repeated, booleans without a value. One that means nothing here is reported and
//! otherwise passed over, since a suite that starts a server sets what it pleases.

mod flag;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use apiserver::{Authorization, FrontProxy, InFlight};

use super::{AuditArgs, EtcdArgs, OidcArgs};
pub(crate) use flag::{FlagError, Parsed, duration, help};

/// The given flags, with upstream's defaults for the rest.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) etcd: EtcdArgs,
    pub(crate) bind_address: IpAddr,
    pub(crate) secure_port: u16,
    pub(crate) advertise_address: Option<IpAddr>,
    pub(crate) cert_dir: PathBuf,
    /// Certificate and key to serve with.
    pub(crate) serving: Option<(PathBuf, PathBuf)>,
    pub(crate) client_ca_file: Option<PathBuf>,
    pub(crate) front_proxy_ca_file: Option<PathBuf>,
    pub(crate) front_proxy: FrontProxy,
    pub(crate) accounts: ServiceAccounts,
    pub(crate) service_range: String,
    pub(crate) authorization: Vec<Authorization>,
    pub(crate) anonymous: bool,
    pub(crate) token_auth_file: Option<PathBuf>,
    pub(crate) disabled_admission: BTreeSet<String>,
    pub(crate) enabled_admission: BTreeSet<String>,
    pub(crate) audit: AuditArgs,
    pub(crate) encryption_provider_config: Option<PathBuf>,
    pub(crate) oidc: OidcArgs,
    pub(crate) bootstrap_tokens: bool,
    pub(crate) in_flight: InFlight,
    pub(crate) event_ttl: Duration,
    pub(crate) verbosity: u8,
}

/// The issuers whose tokens are issued and accepted.
#[derive(Debug)]
pub(crate) struct ServiceAccounts {
    /// The first one issues.
    pub(crate) issuers: Vec<String>,
    pub(crate) audiences: Vec<String>,
    pub(crate) key_files: Vec<PathBuf>,
    pub(crate) signing_key_file: Option<PathBuf>,
}

impl Options {
    pub(crate) fn read(flags: &Parsed) -> Result<Self, FlagError> {
        let usual = InFlight::default();
        let authorization = authorization(flags)?;
        let open = authorization.contains(&Authorization::AlwaysAllow);
        Ok(Self {
            etcd: etcd(flags)?,
            bind_address: flags.number("bind-address", Ipv4Addr::UNSPECIFIED.into())?,
            secure_port: flags.number("secure-port", 6443)?,
            advertise_address: flags.parse_maybe("advertise-address")?,
            cert_dir: flags.path("cert-dir").unwrap_or_else(|| "/var/run/kubernetes".into()),
            serving: serving(flags)?,
            client_ca_file: flags.path("client-ca-file"),
            front_proxy_ca_file: flags.path("requestheader-client-ca-file"),
            front_proxy: front_proxy(flags),
            accounts: ServiceAccounts {
                issuers: flags.list("service-account-issuer"),
                audiences: flags.list("api-audiences"),
                key_files: flags
                    .list("service-account-key-file")
                    .into_iter()
                    .map(PathBuf::from)
                    .collect(),
                signing_key_file: flags.path("service-account-signing-key-file"),
            },
            // The second of two ranges would be of the other family.
            service_range: flags
                .list("service-cluster-ip-range")
                .into_iter()
                .next()
                .unwrap_or_else(|| "10.0.0.0/24".to_owned()),
            authorization,
            // As upstream: if every request is allowed, the user should at least be known.
            anonymous: flags.flag("anonymous-auth", true)? && !open,
            token_auth_file: flags.path("token-auth-file"),
            disabled_admission: disabled_admission(flags),
            enabled_admission: flags.list("enable-admission-plugins").into_iter().collect(),
            audit: audit(flags)?,
            encryption_provider_config: flags.path("encryption-provider-config"),
            oidc: oidc(flags),
            bootstrap_tokens: flags.flag("enable-bootstrap-token-auth", false)?,
            in_flight: InFlight {
                reading: flags.number("max-requests-inflight", usual.reading)?,
                writing: flags.number("max-mutating-requests-inflight", usual.writing)?,
            },
            event_ttl: flags.duration("event-ttl", Duration::from_secs(3600))?,
            verbosity: flags.number("v", 0)?,
        })
    }
}

fn etcd(flags: &Parsed) -> Result<EtcdArgs, FlagError> {
    let etcd_endpoints = flags.list("etcd-servers");
    if etcd_endpoints.is_empty() {
        return Err(FlagError::Missing { flag: "etcd-servers" });
    }
    let is_url = |text: &&String| text.starts_with("http://") || text.starts_with("https://");
    if let Some(wrong) = etcd_endpoints.iter().find(|own| !is_url(own)) {
        let wanted = "URLs that begin with http:// or https://";
        return Err(FlagError::Value { flag: "etcd-servers", value: wrong.clone(), wanted });
    }
    Ok(EtcdArgs {
        etcd_endpoints,
        etcd_cafile: flags.path("etcd-cafile"),
        etcd_certfile: flags.path("etcd-certfile"),
        etcd_keyfile: flags.path("etcd-keyfile"),
        etcd_prefix: flags.text("etcd-prefix").unwrap_or("/registry").to_owned(),
    })
}

fn audit(flags: &Parsed) -> Result<AuditArgs, FlagError> {
    let usual = AuditArgs::default();
    Ok(AuditArgs {
        no_audit: usual.no_audit,
        audit_policy_file: flags.path("audit-policy-file"),
        audit_log_path: flags.path("audit-log-path"),
        audit_log_maxage: flags.number("audit-log-maxage", usual.audit_log_maxage)?,
        audit_log_maxbackup: flags.number("audit-log-maxbackup", usual.audit_log_maxbackup)?,
        audit_log_maxsize: flags.number("audit-log-maxsize", usual.audit_log_maxsize)?,
        audit_webhook_config_file: flags.path("audit-webhook-config-file"),
        audit_webhook_batch_buffer_size: flags
            .number("audit-webhook-batch-buffer-size", usual.audit_webhook_batch_buffer_size)?,
        audit_webhook_batch_max_size: flags
            .number("audit-webhook-batch-max-size", usual.audit_webhook_batch_max_size)?,
        audit_webhook_batch_max_wait: flags
            .duration("audit-webhook-batch-max-wait", usual.audit_webhook_batch_max_wait)?,
        audit_webhook_initial_backoff: flags
            .duration("audit-webhook-initial-backoff", usual.audit_webhook_initial_backoff)?,
    })
}

fn oidc(flags: &Parsed) -> OidcArgs {
    let text = |flag| flags.text(flag).map(str::to_owned);
    OidcArgs {
        oidc_issuer_url: text("oidc-issuer-url"),
        oidc_client_id: text("oidc-client-id"),
        oidc_username_claim: text("oidc-username-claim"),
        oidc_username_prefix: text("oidc-username-prefix"),
        oidc_groups_claim: text("oidc-groups-claim"),
        oidc_groups_prefix: text("oidc-groups-prefix"),
        oidc_required_claim: flags.list("oidc-required-claim"),
        oidc_signing_algs: flags.list("oidc-signing-algs"),
        oidc_ca_file: flags.path("oidc-ca-file"),
    }
}

fn serving(flags: &Parsed) -> Result<Option<(PathBuf, PathBuf)>, FlagError> {
    match (flags.path("tls-cert-file"), flags.path("tls-private-key-file")) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (None, Some(_)) => Err(FlagError::Missing { flag: "tls-cert-file" }),
        (Some(_), None) => Err(FlagError::Missing { flag: "tls-private-key-file" }),
    }
}

fn front_proxy(flags: &Parsed) -> FrontProxy {
    let usual = FrontProxy::default();
    let or = |name, usual: Vec<String>| {
        let given = flags.list(name);
        if given.is_empty() { usual } else { given }
    };
    FrontProxy {
        allowed_names: flags.list("requestheader-allowed-names"),
        username: or("requestheader-username-headers", usual.username),
        uid: or("requestheader-uid-headers", usual.uid),
        group: or("requestheader-group-headers", usual.group),
        extra_prefix: or("requestheader-extra-headers-prefix", usual.extra_prefix),
    }
}

fn authorization(flags: &Parsed) -> Result<Vec<Authorization>, FlagError> {
    let modes = flags.list("authorization-mode");
    if modes.is_empty() {
        return Ok(vec![Authorization::AlwaysAllow]);
    }
    let mode = |text: &String| match text.as_str() {
        "AlwaysAllow" => Ok(Authorization::AlwaysAllow),
        "AlwaysDeny" => Ok(Authorization::AlwaysDeny),
        "RBAC" => Ok(Authorization::Rbac),
        "Node" => Ok(Authorization::Node),
        _ => Err(FlagError::Value {
            flag: "authorization-mode",
            value: text.clone(),
            wanted: "AlwaysAllow, AlwaysDeny, Node or RBAC",
        }),
    };
    modes.iter().map(mode).collect()
}

/// Enabling wins over disabling, as upstream's default set is on unless it is said.
fn disabled_admission(flags: &Parsed) -> BTreeSet<String> {
    let enabled = flags.list("enable-admission-plugins");
    let disabled = flags.list("disable-admission-plugins").into_iter();
    disabled.filter(|plugin| !enabled.contains(plugin)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, FlagError> {
        let words = line.split_whitespace().map(str::to_owned);
        Options::read(&Parsed::parse(words.collect())?)
    }

    #[test]
    fn the_arguments_of_envtest_are_understood() {
        let options = read(
            "--allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 \
             --cert-dir=/c --client-ca-file=/c/client-cert-auth-ca.crt \
             --disable-admission-plugins=ServiceAccount --etcd-servers=http://127.0.0.1:2379 \
             --secure-port=40001 --service-account-issuer=https://127.0.0.1:40001/ \
             --service-account-key-file=/c/sa-signer.crt \
             --service-account-signing-key-file=/c/sa-signer.key \
             --service-cluster-ip-range=10.0.0.0/24",
        )
        .unwrap();
        assert_eq!(options.etcd.etcd_endpoints, ["http://127.0.0.1:2379"]);
        assert_eq!(
            (options.secure_port, options.bind_address.to_string().as_str()),
            (40001, "127.0.0.1")
        );
        assert_eq!(options.authorization, [Authorization::Rbac]);
        assert!(options.anonymous && options.disabled_admission.contains("ServiceAccount"));
        assert_eq!(options.accounts.issuers, ["https://127.0.0.1:40001/"]);
        assert!(options.serving.is_none());
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for (line, expected) in [
            ("", "--etcd-servers must be specified"),
            (
                "--etcd-servers http://a --secure-port many",
                "--secure-port \"many\" is invalid: a number up to 65535",
            ),
            (
                "--etcd-servers http://a --authorization-mode=Magic",
                "--authorization-mode \"Magic\" is invalid: AlwaysAllow, AlwaysDeny, Node or RBAC",
            ),
            (
                "--etcd-servers http://a --anonymous-auth=perhaps",
                "--anonymous-auth \"perhaps\" is invalid: true or false",
            ),
            (
                "--etcd-servers http://a --event-ttl=1y",
                "--event-ttl \"1y\" is invalid: a duration like 1h30m",
            ),
            (
                "--etcd-servers http://a --tls-cert-file=c",
                "--tls-private-key-file must be specified",
            ),
            ("--etcd-servers", "--etcd-servers needs a value"),
            (
                "--etcd-servers http://a,b",
                "--etcd-servers \"b\" is invalid: URLs that begin with http:// or https://",
            ),
            ("--etcd-servers http://a stray", "unexpected argument \"stray\""),
        ] {
            assert_eq!(read(line).unwrap_err().to_string(), expected, "{line}");
        }
    }

    #[test]
    fn all_authenticated_users_may_do_everything_by_default() {
        let options = read("--etcd-servers=http://a,http://b --event-ttl=1h30m -v=4").unwrap();
        assert_eq!(options.authorization, [Authorization::AlwaysAllow]);
        assert!(!options.anonymous);
        assert_eq!((options.etcd.etcd_endpoints.len(), options.verbosity), (2, 4));
        assert_eq!(options.event_ttl, Duration::from_secs(5400));
    }
}
