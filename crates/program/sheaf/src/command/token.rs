//! `sheaf token`: join tokens, which the cluster stores as bootstrap tokens in `kube-system`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use auth::pki::CertificateFacts;
use auth::token::bootstrap::{self, NAMESPACE, SECRET_PREFIX, SECRET_TYPE};
use auth::token::join::{JoinToken, MAX_URLS};
use base::clock;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hci::cluster::WITNESS_ROLE;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::link::ClusterClient;
use super::management::read_servers;
use super::{table, user_token};
use crate::cli::{
    NodeRole, TokenCommand, TokenCreateArgs, TokenPrint, TokenUses, UserTokenCommand,
};
use crate::data_dir::Layout;

const NODES: &str = "/api/v1/nodes";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
/// The keys of a token's lists of uses and users in its Secret.
const USES: &str = "uses";
const USED_BY: &str = "used-by";

pub(super) fn run(command: TokenCommand) -> Result<()> {
    // The former spelling, from before tokens were for joining.
    let command = match command {
        TokenCommand::Create(args) if args.user.is_some() => {
            let TokenCreateArgs { place, user, group, .. } = *args;
            let user = user.unwrap_or_default();
            return user_token::run(UserTokenCommand::Create { data: place.data, user, group });
        }
        TokenCommand::Revoke { place, user: Some(user), .. } => {
            return user_token::run(UserTokenCommand::Revoke { data: place.data, user });
        }
        command => command,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(dispatch(command))
}

async fn dispatch(command: TokenCommand) -> Result<()> {
    match command {
        TokenCommand::Create(args) => create(&args).await,
        TokenCommand::List { place } => {
            let cluster = ClusterClient::to(&place).await?;
            let path = format!("{SECRETS}?fieldSelector=type={SECRET_TYPE}");
            let secrets = cluster.items(&path).await?;
            super::print(&table::align(&rows(&secrets, clock::now())))
        }
        TokenCommand::Revoke { place, id, .. } => {
            let id = id.unwrap_or_default();
            let cluster = ClusterClient::to(&place).await?;
            let path = format!("{SECRETS}/{SECRET_PREFIX}{id}");
            if cluster.find(&path).await?.is_none() {
                bail!("there is no token {id}; `sheaf token list` shows those that exist");
            }
            cluster.delete(&path).await?;
            super::print(&format!("token {id} revoked; nodes that joined with it stay\n"))
        }
    }
}

async fn create(args: &TokenCreateArgs) -> Result<()> {
    if args.role == NodeRole::Witness && args.uses != TokenUses::Limited(1) {
        bail!("--uses: a cluster has one witness at most, and a token for it is used once");
    }
    let cluster = ClusterClient::to(&args.place).await?;
    if args.role == NodeRole::Witness {
        let found = cluster.items(&format!("{NODES}?labelSelector={WITNESS_ROLE}%3Dtrue")).await?;
        if let Some(name) = found.first().and_then(|node| node["metadata"]["name"].as_str()) {
            bail!(
                "the cluster has a witness, the node {name}: a second one would not vote. Remove it \
                 first, `sheaf node remove {name}`, or add a management node: `sheaf token create \
                 --role management`"
            );
        }
    }
    let roots = cluster.config.root_cert.clone().unwrap_or_default();
    let root = roots.first().context("the kubeconfig names no CA certificate")?;
    let ca = CertificateFacts::of(root).context("cannot read the CA certificate")?.public_key_pin();
    let mut urls = urls(&args.urls, &cluster.config.cluster_url.to_string())?;
    if args.urls.is_empty() && args.place.kubeconfig().is_none() {
        let others = read_servers(&Layout::new(args.place.data.data_dir.as_deref())?);
        urls = with_others(urls, others);
    }
    let exp = clock::now().checked_add(args.ttl).context("--ttl is too long")?;
    let (id, secret) = bootstrap::generate();
    let role = args.role.word().to_owned();
    let token = JoinToken { ca, id, secret, urls, role, exp: Some(exp) };
    cluster.post(SECRETS, &object(&token, args.uses, args.node.as_deref())).await?;
    super::print(&match args.print {
        TokenPrint::Token => format!("{}\n", token.encode()),
        TokenPrint::Command => instructions(&token, args),
    })
}

/// The addresses that the new node is to contact: the given ones, or the one that the server
/// advertises.
fn urls(given: &[String], own: &str) -> Result<Vec<String>> {
    let own = own.trim_end_matches('/').to_owned();
    let urls = if given.is_empty() { vec![own] } else { given.to_vec() };
    if urls.len() > MAX_URLS {
        bail!("--server is given {} times; at most {MAX_URLS} are used", urls.len());
    }
    for url in &urls {
        let uri: http::Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        if uri.scheme_str() != Some("https") || host.is_empty() {
            bail!("{url:?} is not a URL of the form https://HOST:PORT");
        }
        let is_loopback = host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        if is_loopback || host == "localhost" {
            bail!(
                "other machines cannot reach {url}: start the server with --listen \
                 0.0.0.0:6443 --advertise-address IP, or give its URL with --server"
            );
        }
    }
    Ok(urls)
}

/// The other servers of the cluster after the own, as many as a token holds.
fn with_others(mut urls: Vec<String>, others: Vec<String>) -> Vec<String> {
    let fresh: Vec<String> = others.into_iter().filter(|url| !urls.contains(url)).collect();
    urls.extend(fresh);
    urls.truncate(MAX_URLS);
    urls
}

/// The Secret that the API server and the approving controller read.
fn object(token: &JoinToken, uses: TokenUses, node: Option<&str>) -> Value {
    let mut data: BTreeMap<&str, String> = BTreeMap::from([
        ("token-id", token.id.clone()),
        ("token-secret", token.secret.clone()),
        ("usage-bootstrap-authentication", "true".to_owned()),
        ("auth-extra-groups", format!("system:bootstrappers:sheaf:{}", token.role)),
        ("description", format!("join token for a {} node", token.role)),
        ("role", token.role.clone()),
    ]);
    if let Some(end) = token.exp {
        data.insert("expiration", clock::rfc3339(end));
    }
    if let TokenUses::Limited(uses) = uses {
        data.insert(USES, uses.to_string());
    }
    if let Some(node) = node {
        data.insert("node-name", node.to_owned());
    }
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": format!("{SECRET_PREFIX}{}", token.id), "namespace": NAMESPACE},
        "stringData": data,
    })
}

fn instructions(token: &JoinToken, args: &TokenCreateArgs) -> String {
    let uses = match args.uses {
        TokenUses::Limited(1) => "one node".to_owned(),
        TokenUses::Limited(uses) => format!("{uses} nodes"),
        TokenUses::Unlimited => "any number of nodes".to_owned(),
    };
    let name = args.node.as_ref().map_or_else(String::new, |node| format!(" --node-name {node}"));
    let (command, role) = match args.role {
        NodeRole::Worker => ("server", ""),
        NodeRole::Management => ("server", " --role management"),
        NodeRole::Witness => ("witness", ""),
    };
    let until =
        token.exp.map_or_else(String::new, |end| format!(", until {}", clock::rfc3339(end)));
    let url = token.urls.first().map_or("", String::as_str);
    format!(
        "Run on the new node, as root ({uses}{until}):\n\n  \
         sheaf {command} --join {url}{name}{role} --token {}\n\n\
         Revoke it with: sheaf token revoke {}\n",
        token.encode(),
        token.id
    )
}

fn rows(secrets: &[Value], now: Timestamp) -> Vec<Vec<String>> {
    let header = ["ID", "ROLE", "NODE", "USES", "USED BY", "EXPIRES", "STATE"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for secret in secrets {
        let text = |key: &str| {
            let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap_or_default());
            String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
        };
        let (uses, used_by, expiration) = (text(USES), text(USED_BY), text("expiration"));
        let used = used_by.split(',').filter(|name| !name.is_empty()).count();
        let is_used_up = uses.parse::<usize>().is_ok_and(|uses| used >= uses);
        let is_expired = expiration.parse::<Timestamp>().is_ok_and(|end| end <= now);
        let state = match (is_expired, is_used_up) {
            (true, _) => "expired",
            (false, true) => "used up",
            (false, false) => "valid",
        };
        let total = if uses.is_empty() { "unlimited".to_owned() } else { format!("{used}/{uses}") };
        rows.push(vec![
            text("token-id"),
            text("role"),
            text("node-name"),
            total,
            used_by,
            expiration,
            state.to_owned(),
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_is_sent_where_it_can_go() {
        let own = "https://10.0.0.1:6443/";
        assert_eq!(urls(&[], own).unwrap(), ["https://10.0.0.1:6443"]);
        let given = vec!["https://cluster.example:6443".to_owned()];
        assert_eq!(urls(&given, "https://127.0.0.1:6443").unwrap(), given);
        for bad in ["https://127.0.0.1:6443", "https://[::1]:6443", "https://localhost:6443"] {
            let refused = urls(&[], bad).unwrap_err().to_string();
            assert!(refused.contains("--advertise-address"), "{refused}");
        }
        for bad in ["http://10.0.0.1:6443", "10.0.0.1", "/x"] {
            assert!(urls(&[bad.to_owned()], own).is_err(), "{bad}");
        }
        assert!(urls(&vec![own.to_owned(); 5], own).is_err());
        let list = |urls: &[&str]| urls.iter().map(|&url| url.to_owned()).collect::<Vec<_>>();
        let all = with_others(list(&["a"]), list(&["b", "a", "c", "d", "e"]));
        assert_eq!(all, list(&["a", "b", "c", "d"]));
    }

    #[test]
    fn a_list_says_which_tokens_still_work() {
        let secret = |fields: &[(&str, &str)]| {
            let data: BTreeMap<_, _> =
                fields.iter().map(|(key, value)| (*key, STANDARD.encode(value))).collect();
            json!({ "data": data })
        };
        let now = "2026-06-01T00:00:00Z".parse().unwrap();
        let later = ("expiration", "2026-06-02T00:00:00Z");
        for (fields, uses, state) in [
            (&[("uses", "1"), later][..], "0/1", "valid"),
            (&[("uses", "1"), ("used-by", "n2"), later], "1/1", "used up"),
            (&[("uses", "2"), ("used-by", "n2"), later], "1/2", "valid"),
            (&[("used-by", "n2,n3"), later], "unlimited", "valid"),
            (&[("uses", "1"), ("expiration", "2026-06-01T00:00:00Z")], "0/1", "expired"),
        ] {
            let rows = rows(&[secret(fields)], now);
            assert_eq!((rows[1][3].as_str(), rows[1][6].as_str()), (uses, state), "{fields:?}");
        }
    }
}
