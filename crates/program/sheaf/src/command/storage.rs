//! `sheaf storage`: runs the storage process of a node, or sends requests to a running one. Refuses
//! to listen outside of the loopback without TLS.

mod confine;
mod system_calls;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use block::ids::{ReplicaId, VolumeId};
use block::run::{Address, AdminReply, AdminRequest, MemberState, Role, TlsFiles};
use block::storage::{
    Attachment, Client, RecordPlace, ReplicaAt, ReplicaState, Storage, StorageOptions,
    StorageStatus, VolumeState,
};

use super::dev::{driver, human, stop_on_signal};
use super::print;
use crate::cli::{LogFormat, Output, StorageAction, StorageArgs};
use crate::logging;

/// The name of this node in the records of volumes without replicas on other nodes.
const NODE: &str = "local";

pub(super) fn run(args: StorageArgs) -> Result<()> {
    let dir = args.dir.clone().context("--dir is needed: the directory of the storage process")?;
    match args.action {
        None => serve(&args, dir),
        Some(action) => act(&dir, action),
    }
}

fn serve(args: &StorageArgs, dir: PathBuf) -> Result<()> {
    if let Some((uid, gid)) = args.user {
        confine::become_user(uid, gid).context("cannot change to the user of --user")?;
    }
    let confined = confine::confine();
    let filtered = system_calls::filter();
    logging::start(LogFormat::Text, "info")?;
    // Serving volumes is more important than confinement, for instance on a kernel without
    // capabilities.
    if let Err(error) = confined {
        tracing::warn!(%error, "storage process keeps the rights of its user");
    }
    if let Err(error) = filtered {
        tracing::warn!(%error, "no seccomp filter: system calls of the storage process are not restricted");
    }
    let listen = args.listen.map(Address::Tcp);
    let tls = tls(args)?;
    let options = StorageOptions { dir, listen, tls, driver: driver(args.io), boot: None };
    let storage = Storage::new(&options)?;
    stop_on_signal(storage.handle())?;
    let files = if storage.uses_uring() { "io_uring" } else { "threads" };
    let engines = storage.address().map_or_else(String::new, |it| format!(", engines on {it}"));
    // The parent process waits for this line, and may have ended.
    let ready = move || drop(print(&format!("ready, files by {files}{engines}\n")));
    Ok(storage.run(ready)?)
}

/// The certificate of this node for its peers, if there are peers.
fn tls(args: &StorageArgs) -> Result<Option<TlsFiles>> {
    let (Some(ca), Some(cert), Some(key)) = (&args.ca, &args.cert, &args.key) else {
        return match args.listen {
            Some(address) if !address.ip().is_loopback() => bail!(
                "--listen {address} is reachable by others and needs TLS: give --ca, --cert and \
                 --key, or an address of the loopback"
            ),
            _ => Ok(None),
        };
    };
    let (ca, certificate, key) = (ca.clone(), cert.clone(), key.clone());
    Ok(Some(TlsFiles { ca, certificate, key, peers: Role::node() }))
}

fn act(dir: &Path, action: StorageAction) -> Result<()> {
    let mut client = Client::connect(dir)?;
    let volume = |client: &mut Client, id: &str, request| -> Result<AdminReply> {
        Ok(client.volume(parse(id)?, request)?)
    };
    match action {
        StorageAction::Status { output } => {
            let status = client.status()?;
            print(&match output {
                Some(Output::Json) => serde_json::to_string_pretty(&status)? + "\n",
                None => status_text(&status),
            })
        }
        StorageAction::Create { size } => {
            let volume = VolumeId::random();
            client.create(volume, size)?;
            print(&format!("{volume}\n"))
        }
        StorageAction::Delete { volume } => Ok(client.delete(parse(&volume)?)?),
        StorageAction::Attach { volume, nbd, nbd_tcp, vhost } => {
            let volume = parse(&volume)?;
            let nbd = nbd.map(std::path::absolute).transpose()?;
            let vhost = vhost.map(std::path::absolute).transpose()?;
            // As `create` makes it: the replica has the name of its volume.
            let replicas = vec![ReplicaAt { id: ReplicaId(volume.0), at: None, node: None }];
            let (node, record) = (NODE.to_owned(), RecordPlace::File);
            let encrypted = false;
            let attachment = Attachment {
                volume,
                node,
                replicas,
                nbd,
                nbd_tcp,
                vhost,
                record,
                encrypted,
                standby: false,
            };
            Ok(client.attach(attachment)?)
        }
        StorageAction::Detach { volume } => Ok(client.detach(parse(&volume)?)?),
        StorageAction::Snapshot { volume: id, name } => {
            let created = u64::try_from(base::clock::now().as_second()).unwrap_or(0);
            let request = AdminRequest::Snapshot { name, created, labels: Default::default() };
            match volume(&mut client, &id, request)? {
                AdminReply::Snapshot { id } => print(&format!("{id}\n")),
                _ => Ok(()),
            }
        }
        StorageAction::DeleteSnapshot { volume: id, name } => {
            volume(&mut client, &id, AdminRequest::DeleteSnapshot { name }).map(drop)
        }
        StorageAction::Revert { volume: id, name } => {
            volume(&mut client, &id, AdminRequest::Revert { name }).map(drop)
        }
        StorageAction::Resize { volume: id, size } => {
            volume(&mut client, &id, AdminRequest::Resize { size }).map(drop)
        }
        StorageAction::Scrub { volume: id } => {
            volume(&mut client, &id, AdminRequest::Scrub).map(drop)
        }
        StorageAction::Ask { request } => {
            let request = serde_json::from_str(&request).context("this is no request")?;
            print(&(serde_json::to_string_pretty(&client.ask(&request)?)? + "\n"))
        }
        StorageAction::Stop => Ok(client.stop()?),
    }
}

fn parse(volume: &str) -> Result<VolumeId> {
    volume.parse().with_context(|| format!("VOLUME {volume:?} is not the id of one"))
}

fn status_text(status: &StorageStatus) -> String {
    let mut text =
        format!("{:<38}{:<14}{:<12}{:<10}SERVED ON\n", "VOLUME", "PHASE", "SIZE", "SYNC");
    for volume in &status.volumes {
        volume_line(&mut text, volume);
    }
    let _ = writeln!(text, "\n{:<38}{:<12}{:<10}DIR", "REPLICA", "DATA", "WORK");
    for replica in &status.replicas {
        replica_line(&mut text, replica);
    }
    if status.refused_engines > 0 {
        let count = status.refused_engines;
        let _ = writeln!(
            text,
            "\nRefused {count} connections of engines without a grant; see the log."
        );
    }
    text
}

fn volume_line(text: &mut String, volume: &VolumeState) {
    let VolumeState { attachment, status, error } = volume;
    let phase = status.as_ref().map_or("-", |it| it.phase.as_str());
    let size = status.as_ref().map_or("-".to_owned(), |it| human(it.size));
    let in_sync = status.as_ref().map_or("-".to_owned(), |it| {
        let count = it.replicas.iter().filter(|it| it.state == MemberState::InSync).count();
        format!("{count} of {}", it.replicas.len())
    });
    let unix = attachment.nbd.as_ref().map(|it| it.display().to_string());
    let vhost = attachment.vhost.as_ref().map(|it| it.display().to_string());
    let places: Vec<String> =
        unix.into_iter().chain(attachment.nbd_tcp.map(|it| it.to_string())).chain(vhost).collect();
    let places = places.join(" ");
    let id = attachment.volume.to_string();
    let _ = writeln!(text, "{id:<38}{phase:<14}{size:<12}{in_sync:<10}{places}");
    if let Some(error) = error {
        let _ = writeln!(text, "  {error}");
    }
}

fn replica_line(text: &mut String, replica: &ReplicaState) {
    let used = replica.used_bytes.map_or("-".to_owned(), |it| format!("{} MiB", it >> 20));
    let work = replica.work.map_or("-".to_owned(), |it| {
        format!("{} %", u64::from(it.done) * 100 / u64::from(it.total.max(1)))
    });
    let (id, dir) = (replica.replica.to_string(), replica.dir.display());
    let _ = writeln!(text, "{id:<38}{used:<12}{work:<10}{dir}");
    if let Some(error) = &replica.error {
        let _ = writeln!(text, "  {error}");
    }
}
