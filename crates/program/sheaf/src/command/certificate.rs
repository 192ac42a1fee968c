//! `sheaf certificate`: when certificates end, and revoking those of clients.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use auth::pki::overview::{
    IssuedCertificate, OwnCertificate, issued_certificates, own_certificates,
};
use auth::revocation::{
    ClientCertificate, NAME, NAMESPACE, Revocation, RevocationList, RevokedSubject,
};
use auth::token::rotation::{self, PublishedKeys};
use base::clock;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::link::ClusterClient;
use super::table;
use crate::cli::{CertificateCommand, ClusterScope, RevokeArgs, RevokedArgs};
use crate::data_dir::Layout;

/// No certificate is valid for longer: that of a new CA.
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 3650);
/// Authorities and certificates that end within this time and do not renew themselves.
const SOON: SignedDuration = SignedDuration::from_hours(24 * 30);

pub(super) fn run(command: CertificateCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        match command {
            CertificateCommand::List { place } => list(&place).await,
            CertificateCommand::Revoke(args) => revoke(&args).await,
            CertificateCommand::Restore { place, subject } => restore(&place, &subject).await,
        }
    })
}

fn path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")
}

async fn revocations(cluster: &ClusterClient) -> Result<(bool, RevocationList)> {
    let map = cluster.find(&path()).await?;
    let data = map.as_ref().and_then(|map| map["data"].as_object()).into_iter().flatten();
    let list =
        RevocationList::read(data.filter_map(|(key, value)| Some((&**key, value.as_str()?))));
    Ok((map.is_some(), list))
}

async fn list(place: &ClusterScope) -> Result<()> {
    let (mut own, mut issued) = (Vec::new(), Vec::new());
    if place.kubeconfig().is_none() {
        let pki = Layout::new(place.data.data_dir.as_deref())?.pki();
        own = own_certificates(&pki).context("cannot read the certificates of this node")?;
        issued = issued_certificates(&pki, clock::now()).context("cannot read what was issued")?;
    }
    let cluster = async {
        let cluster = ClusterClient::to(place).await?;
        anyhow::Ok((revocations(&cluster).await?.1, token_keys(&cluster).await?))
    };
    let (revoked, keys) = match cluster.await {
        Ok((list, keys)) => (Some(list), keys),
        Err(error) if own.is_empty() => return Err(error),
        Err(error) => {
            eprintln!("revocations are not shown: {error:#}");
            (None, PublishedKeys::default())
        }
    };
    let mut text = report(&own, &issued, revoked.as_ref(), clock::now());
    if keys.iter().next().is_some() {
        text = format!("{text}\n{}", table::align(&key_rows(&keys)));
    }
    super::print(&text)
}

/// The public keys of tokens, of all API servers.
async fn token_keys(cluster: &ClusterClient) -> Result<PublishedKeys> {
    let path = format!("/api/v1/namespaces/{}/configmaps/{}", rotation::NAMESPACE, rotation::NAME);
    let map = cluster.find(&path).await?;
    let data = map.as_ref().and_then(|map| map["data"].as_object()).into_iter().flatten();
    Ok(PublishedKeys::read(data.filter_map(|(id, value)| Some((&**id, value.as_str()?)))))
}

fn key_rows(keys: &PublishedKeys) -> Vec<Vec<String>> {
    let mut rows = vec![row(["TOKEN KEY", "CREATED", "LAST DAY OF SIGNING"])];
    for (id, key) in keys.iter() {
        let day = |time: Timestamp| time.strftime("%Y-%m-%d").to_string();
        rows.push(row([id, &day(key.created), &day(key.used)]));
    }
    rows
}

/// The text for people.
fn report(
    own: &[OwnCertificate],
    issued: &[IssuedCertificate],
    revoked: Option<&RevocationList>,
    now: Timestamp,
) -> String {
    let mut parts = Vec::new();
    if !own.is_empty() {
        parts.push(table::align(&own_rows(own, now)));
    }
    if !issued.is_empty() {
        parts.push(table::align(&issued_rows(issued, revoked, now)));
    }
    if let Some(list) = revoked.filter(|list| !list.is_empty()) {
        parts.push(table::align(&revoked_rows(list)));
    }
    parts.join("\n")
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// `2027-11-18 (365 days)`
fn end(time: Timestamp, now: Timestamp) -> String {
    let days = time.duration_since(now).as_hours() / 24;
    let date = time.strftime("%Y-%m-%d");
    match time <= now {
        true => format!("{date} (has ended)"),
        false => format!("{date} ({days} days)"),
    }
}

fn own_rows(own: &[OwnCertificate], now: Timestamp) -> Vec<Vec<String>> {
    let mut rows = vec![row(["FILE", "NAME", "ENDS", "SERIAL"])];
    for certificate in own {
        let note = if certificate.is_older { " (trusted)" } else { "" };
        let file = format!("{}{note}", certificate.file);
        rows.push(row([
            &file,
            &certificate.name,
            &end(certificate.expires, now),
            &certificate.serial,
        ]));
    }
    rows
}

fn issued_rows(
    issued: &[IssuedCertificate],
    revoked: Option<&RevocationList>,
    now: Timestamp,
) -> Vec<Vec<String>> {
    let mut rows = vec![row(["ISSUED TO", "ISSUED", "ENDS", "STATE", "SERIAL"])];
    for own in issued {
        let IssuedCertificate { user, serial, issued, expires } = own.clone();
        let key_pin = String::new();
        let certificate = ClientCertificate { user, serial, issued, expires, key_pin };
        let is_revoked = revoked.is_some_and(|list| list.revokes(&certificate));
        let state = match is_revoked {
            true => "revoked",
            false if expires.duration_since(now) < SOON => "ends soon",
            false => "valid",
        };
        let day = issued.strftime("%Y-%m-%d").to_string();
        rows.push(row([&own.user, &day, &end(expires, now), state, &own.serial]));
    }
    rows
}

fn revoked_rows(list: &RevocationList) -> Vec<Vec<String>> {
    let mut rows = vec![row(["REVOKED", "ISSUED BEFORE", "REVOKED AT", "REASON"])];
    for (subject, entry) in list.entries() {
        let what = match subject {
            RevokedSubject::Serial(serial) => format!("serial {serial}"),
            RevokedSubject::User(user) => format!("user {user}"),
        };
        let before = entry.and_then(|own| own.issued_before).map(clock::rfc3339);
        let at = entry.map(|own| clock::rfc3339(own.revoked_at)).unwrap_or_default();
        let reason = entry.map_or("the entry is damaged", |own| &own.reason);
        rows.push(row([&what, &before.unwrap_or_default(), &at, reason]));
    }
    rows
}

/// The subject, and when its last certificate ends if that is known.
fn subject(args: &RevokedArgs) -> Result<(RevokedSubject, Option<Timestamp>)> {
    if let Some(serial) = &args.serial {
        return Ok((RevokedSubject::serial(serial)?, None));
    }
    if let Some(user) = &args.user {
        return Ok((RevokedSubject::user(user)?, None));
    }
    let file = args.file.as_deref().context("nothing to revoke")?;
    let certificate = certificate_in(file)?;
    Ok((RevokedSubject::serial(&certificate.serial)?, Some(certificate.expires)))
}

/// The subject of a sentence about what is revoked.
fn is_or_are(subject: &RevokedSubject) -> String {
    match subject {
        RevokedSubject::Serial(serial) => format!("certificate {serial} is"),
        RevokedSubject::User(user) => format!("certificates of {user} are"),
    }
}

/// The client certificate in a PEM file or a kubeconfig.
fn certificate_in(file: &Path) -> Result<ClientCertificate> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let encoded = text.lines().find_map(|line| {
        line.trim().trim_start_matches("- ").strip_prefix("client-certificate-data:")
    });
    let text = match encoded {
        None => text,
        Some(encoded) => {
            let bytes = STANDARD.decode(encoded.trim().trim_matches(['"', '\'']));
            let bytes = bytes.with_context(|| format!("{} is damaged", file.display()))?;
            String::from_utf8(bytes).with_context(|| format!("{} is damaged", file.display()))?
        }
    };
    let der = auth::pki::first_der(&text)
        .with_context(|| format!("there is no client certificate in {}", file.display()))?;
    ClientCertificate::of(&der).with_context(|| format!("cannot use {}", file.display()))
}

async fn revoke(args: &RevokeArgs) -> Result<()> {
    let (subject, expires) = subject(&args.subject)?;
    let now = clock::now();
    let until = expires.unwrap_or_else(|| now.saturating_add(LONGEST).unwrap_or(Timestamp::MAX));
    let (issued_before, text) = match &subject {
        RevokedSubject::Serial(serial) => (None, format!("certificate {serial}")),
        RevokedSubject::User(user) => {
            // Times in certificates are whole seconds: those of the present one are included.
            let next = Timestamp::from_second(now.as_second() + 1).unwrap_or(now);
            let before = args.issued_before.unwrap_or(next);
            if before > next {
                bail!("--issued-before: {} has not come yet", clock::rfc3339(before));
            }
            let time = clock::rfc3339(before);
            (Some(before), format!("certificates of {user} that were issued before {time}"))
        }
    };
    let entry = Revocation { issued_before, revoked_at: now, until, reason: args.reason.clone() };
    let value = serde_json::to_string(&entry).context("cannot encode the revocation")?;
    let cluster = ClusterClient::to(&args.place).await?;
    let (exists, list) = revocations(&cluster).await?;
    let is_covered = |known: &Revocation| known.issued_before >= issued_before;
    if list.entries().any(|(own, entry)| *own == subject && entry.is_some_and(is_covered)) {
        bail!("{} revoked already; `sheaf certificate list` shows it", is_or_are(&subject));
    }
    let data = Map::from_iter([(subject.key(), Value::from(value))]);
    if exists {
        cluster.merge(&path(), &json!({"data": data})).await?;
    } else {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": data});
        let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        cluster.post(&maps, &map).await?;
    }
    super::print(&format!("revoked: {text}\n"))
}

async fn restore(place: &ClusterScope, args: &RevokedArgs) -> Result<()> {
    let (subject, _) = subject(args)?;
    let cluster = ClusterClient::to(place).await?;
    let (_, list) = revocations(&cluster).await?;
    if !list.entries().any(|(own, _)| *own == subject) {
        bail!("{} not revoked; `sheaf certificate list` shows all that are", is_or_are(&subject));
    }
    let data = Map::from_iter([(subject.key(), Value::Null)]);
    cluster.merge(&path(), &json!({"data": data})).await?;
    super::print("accepted again\n")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn the_list_says_what_ends_and_what_was_revoked() {
        let day = 86400;
        let own = OwnCertificate {
            file: "admin.pem",
            name: "system:admin".to_owned(),
            serial: "1a".to_owned(),
            issued: at(0),
            expires: at(300 * day),
            is_older: false,
        };
        let issued = |user: &str, serial: &str, days: i64| IssuedCertificate {
            user: user.to_owned(),
            serial: serial.to_owned(),
            issued: at(0),
            expires: at(days * day),
        };
        let entry = Revocation {
            issued_before: Some(at(10)),
            revoked_at: at(9),
            until: at(400 * day),
            reason: "lost laptop".to_owned(),
        };
        let entry = serde_json::to_string(&entry).unwrap();
        let key = RevokedSubject::user("jane").unwrap().key();
        let list = RevocationList::read([(&*key, &*entry)]);
        let issued = [issued("jane", "2b", 90), issued("bob", "3c", 20), issued("eve", "4d", 90)];
        let text = report(&[own], &issued, Some(&list), at(0));
        expect![[r#"
            FILE        NAME           ENDS                    SERIAL
            admin.pem   system:admin   2027-11-11 (300 days)   1a

            ISSUED TO   ISSUED       ENDS                   STATE       SERIAL
            jane        2027-01-15   2027-04-15 (90 days)   revoked     2b
            bob         2027-01-15   2027-02-04 (20 days)   ends soon   3c
            eve         2027-01-15   2027-04-15 (90 days)   valid       4d

            REVOKED     ISSUED BEFORE          REVOKED AT             REASON
            user jane   2027-01-15T08:00:10Z   2027-01-15T08:00:09Z   lost laptop
        "#]]
        .assert_eq(&text);
    }
}
