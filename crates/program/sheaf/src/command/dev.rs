//! `sheaf dev volume`: a replicated volume on this machine, without a cluster.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use block::crypt::Passphrase;
use block::repl::engine::Notice;
use block::run::lab::{
    Lab, LabOptions, LabReply, LabRequest, ReplicaStatus, ServeOptions, ask, handover, salvage,
};
use block::run::{Address, AdminReply, AdminRequest, Driver, Handle, MemberStatus, VolumeStatus};

use super::print;
use crate::cli::{DevCommand, IoDriver, Output, VolumeAction, VolumeArgs};

pub(super) fn run(command: DevCommand) -> Result<()> {
    let DevCommand::Volume(args) = command;
    let dir = args.dir.clone().context("--dir is needed: the directory of the volume")?;
    match args.action {
        None => serve(args, &dir),
        Some(action) => act(&dir, action),
    }
}

fn serve(args: VolumeArgs, dir: &Path) -> Result<()> {
    let mut nbd: Vec<Address> = args.nbd.into_iter().map(Address::Unix).collect();
    nbd.extend(args.listen.map(Address::Tcp));
    if nbd.is_empty() && args.vhost.is_none() {
        bail!("--nbd, --listen or --vhost is needed: where clients connect");
    }
    let passphrase = args.passphrase_file.as_deref().map(read_passphrase).transpose()?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let vhost = args.vhost.iter().map(|path| path.display().to_string());
    let places: Vec<String> = nbd.iter().map(Address::to_string).chain(vhost).collect();
    let lab = Lab::new(LabOptions {
        dir: dir.to_owned(),
        size: args.size,
        replicas: args.replicas,
        nbd,
        vhost: args.vhost.into_iter().collect(),
        in_process: args.in_process,
        standby: args.standby,
        driver: driver(args.io),
        passphrase,
        spawn: Box::new(move |options| replica_command(&program, options)),
        notices: Box::new(move |notice| report(notice, &places)),
    })?;
    stop_on_signal(lab.handle())?;
    Ok(lab.run()?)
}

/// The first line of a file, as people write it.
fn read_passphrase(path: &Path) -> Result<Passphrase> {
    let text = std::fs::read(path)
        .with_context(|| format!("cannot read --passphrase-file {}", path.display()))?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.is_empty() {
        bail!("--passphrase-file {} begins with an empty line", path.display());
    }
    Ok(Passphrase::new(line))
}

/// The command that serves one replica; see `command/replica.rs`.
fn replica_command(program: &Path, options: &ServeOptions) -> Command {
    let mut command = Command::new(program);
    command.args(["replica", "serve"]).arg(&options.dir);
    match &options.listen {
        Address::Unix(path) => command.arg("--socket").arg(path),
        Address::Tcp(address) => command.arg("--listen").arg(address.to_string()),
    };
    if let Some(idle) = options.idle {
        command.arg("--idle").arg(idle.as_secs().to_string());
    }
    if options.with_parent {
        command.arg("--with-parent");
    }
    command.args([
        "--io",
        match options.driver {
            Driver::Best => "best",
            Driver::Uring => "uring",
            Driver::Threads => "threads",
        },
    ]);
    command
}

pub(super) fn driver(io: IoDriver) -> Driver {
    match io {
        IoDriver::Best => Driver::Best,
        IoDriver::Uring => Driver::Uring,
        IoDriver::Threads => Driver::Threads,
    }
}

/// Releases the volume at the first signal; a second one ends the process at once.
pub(super) fn stop_on_signal(handle: Handle) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            for attempt in 0.. {
                tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
                if attempt > 0 {
                    std::process::exit(1);
                }
                handle.stop();
            }
        });
    })?;
    Ok(())
}

/// Says what happens, one line each, on standard error.
fn report(notice: &Notice, places: &[String]) {
    match notice {
        Notice::Active { generation, isr, reconcile_regions } => {
            eprintln!(
                "serving on {} as generation {generation} with {} replicas in sync",
                places.join(" and "),
                isr.len()
            );
            if *reconcile_regions > 0 {
                eprintln!(
                    "comparing {reconcile_regions} regions that were being written when it stopped"
                );
            }
        }
        Notice::StandingBy => {
            eprintln!(
                "standing by on {}: reads are served, the first write takes the volume",
                places.join(" and ")
            )
        }
        Notice::Waiting => eprintln!("waiting: no replica that is in sync can be reached"),
        Notice::RecordRestored { missing } => {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            eprintln!(
                "waiting: the record is an older copy of itself, and these replicas may be newer \
                 than those that it names: {}; start them, or accept the loss with salvage",
                missing.join(", ")
            );
        }
        Notice::Fenced { by } => {
            eprintln!("fenced: another engine took the volume as generation {by}")
        }
        Notice::Faulted { why } => eprintln!("faulted: {why}"),
        Notice::MemberFailed { replica, why } => eprintln!("replica {replica} failed: {why}"),
        Notice::IsrChanged { isr, .. } => eprintln!("{} replicas are in sync", isr.len()),
        Notice::RebuildStarted { replica, how } => {
            eprintln!(
                "replica {replica} is being brought up to date ({})",
                format!("{how:?}").to_lowercase()
            );
        }
        Notice::RebuildFailed { replica, why } => eprintln!("rebuild of {replica} failed: {why}"),
        Notice::RebuildDone { replica } => eprintln!("replica {replica} is up to date"),
        Notice::Reconciled => eprintln!("all replicas agree"),
        Notice::StaleReplica { replica, why } => {
            eprintln!("replica {replica} is stale and is rebuilt: {why}");
        }
        Notice::Ambiguous { offset, length } => eprintln!(
            "replicas differ in {length} bytes at {offset}, and it is unknown which is right: \
             reads fail until they are written again"
        ),
        Notice::Slow { replica, latency } => eprintln!("replica {replica} is slow: {latency:?}"),
        Notice::Closed => eprintln!("closed"),
        other => eprintln!("{other:?}"),
    }
}

fn act(dir: &Path, action: VolumeAction) -> Result<()> {
    let volume = |request| ask(dir, &LabRequest::Volume(request));
    match action {
        VolumeAction::Status { output } => {
            let LabReply::Status { volume, replicas } = ask(dir, &LabRequest::Status)? else {
                bail!("the volume gave no status");
            };
            let text = match output {
                Some(Output::Json) => {
                    serde_json::to_string_pretty(&LabReply::Status { volume, replicas })? + "\n"
                }
                None => status_text(&volume, &replicas),
            };
            print(&text)
        }
        VolumeAction::Snapshots { output } => {
            let LabReply::Status { volume, .. } = ask(dir, &LabRequest::Status)? else {
                bail!("the volume gave no status");
            };
            match output {
                Some(Output::Json) => {
                    print(&(serde_json::to_string_pretty(&volume.snapshots)? + "\n"))
                }
                None => print(&snapshots_text(&volume)),
            }
        }
        VolumeAction::Snapshot { name } => {
            let created = u64::try_from(base::clock::now().as_second()).unwrap_or(0);
            let request = AdminRequest::Snapshot { name, created, labels: Default::default() };
            match volume(request)? {
                LabReply::Volume(AdminReply::Snapshot { id }) => print(&format!("{id}\n")),
                _ => Ok(()),
            }
        }
        VolumeAction::DeleteSnapshot { name } => {
            done(volume(AdminRequest::DeleteSnapshot { name })?)
        }
        VolumeAction::Revert { name } => done(volume(AdminRequest::Revert { name })?),
        VolumeAction::Resize { size } => done(volume(AdminRequest::Resize { size })?),
        VolumeAction::Scrub => done(volume(AdminRequest::Scrub)?),
        VolumeAction::Rebuild { index } => done(ask(dir, &LabRequest::RebuildReplica { index })?),
        VolumeAction::KillReplica { index } => done(ask(dir, &LabRequest::KillReplica { index })?),
        VolumeAction::StartReplica { index } => {
            done(ask(dir, &LabRequest::StartReplica { index })?)
        }
        VolumeAction::Handover => Ok(handover(dir)?),
        VolumeAction::Salvage { index, force } => {
            let salvaged = salvage(dir, index, force)?;
            let mut text = format!("replica {index} ({}) is the truth now\n", salvaged.kept);
            if let Some(why) = salvaged.stale {
                let _ = writeln!(text, "lost: what it lacks; {why}");
            }
            for replica in salvaged.given_up {
                let _ = writeln!(text, "given up: {replica}");
            }
            print(&text)
        }
    }
}

fn done(_reply: LabReply) -> Result<()> {
    Ok(())
}

fn status_text(volume: &VolumeStatus, replicas: &[ReplicaStatus]) -> String {
    let mut text = format!(
        "{}, generation {}, epoch {}, {}\n",
        volume.phase,
        volume.generation,
        volume.epoch,
        human(volume.size)
    );
    if volume.unreconciled > 0 {
        let _ = writeln!(text, "{} regions are still to be compared", volume.unreconciled);
    }
    let _ = writeln!(
        text,
        "{:<8}{:<24}{:<10}{:<12}{:<10}DIR",
        "REPLICA", "STATE", "PID", "LATENCY", "REBUILT"
    );
    for replica in replicas {
        let member = volume.replicas.iter().find(|it| it.id == replica.id);
        let state = member.map_or("removed", |it| it.state.as_str());
        let pid = replica.pid.map_or("-".to_owned(), |pid| pid.to_string());
        let latency = member.map_or("-".to_owned(), |it| format!("{} µs", it.latency_micros));
        let rebuilt = member.and_then(rebuilt).unwrap_or("-".to_owned());
        let (index, dir) = (replica.index, replica.dir.display());
        let _ = writeln!(text, "{index:<8}{state:<24}{pid:<10}{latency:<12}{rebuilt:<10}{dir}");
        if let Some(error) = &replica.error {
            let _ = writeln!(text, "{:<8}{error}", "");
        }
    }
    text
}

fn rebuilt(member: &MemberStatus) -> Option<String> {
    let (done, all) = (member.rebuilt_bytes?, member.rebuild_bytes?);
    let percent = (done * 100).checked_div(all).unwrap_or(0);
    Some(format!("{percent} %"))
}

fn snapshots_text(volume: &VolumeStatus) -> String {
    if volume.snapshots.is_empty() {
        return "no snapshots\n".to_owned();
    }
    let mut text = format!("{:<24}{:<22}ID\n", "NAME", "CREATED");
    for snapshot in &volume.snapshots {
        let created =
            snapshot.created.parse().ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
        let created = created.map_or(snapshot.created.clone(), |at| at.to_string());
        let _ = writeln!(text, "{:<24}{:<22}{}", snapshot.name, created, snapshot.id);
    }
    text
}

pub(super) fn human(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole =
        units.iter().find(|(shift, _)| bytes >> shift > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or_else(
        || format!("{bytes} bytes"),
        |(shift, unit)| format!("{} {unit}", bytes >> shift),
    )
}
