//! `sheaf replica`: one replica of a volume, in a directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use block::run::Address;
use block::run::lab::{ServeOptions, serve};
use block::store::files::Directory;
use block::store::{Depth, Report, Severity, check_under};

use super::print;
use crate::cli::{Output, ReplicaCommand};

pub(super) fn run(command: ReplicaCommand) -> Result<()> {
    match command {
        ReplicaCommand::Check { dir, metadata_only, output } => {
            let depth = if metadata_only { Depth::Metadata } else { Depth::Data };
            check_directory(&dir, depth, output)
        }
        ReplicaCommand::Serve { dir, socket, listen, idle, with_parent, io } => {
            let listen = match (socket, listen) {
                (Some(path), _) => Address::Unix(path),
                (None, Some(address)) => Address::Tcp(address),
                (None, None) => bail!("--socket or --listen is needed"),
            };
            let idle = idle.map(Duration::from_secs);
            let driver = super::dev::driver(io);
            let options = ServeOptions { dir, listen, driver, idle, with_parent };
            Ok(serve(&options, |shard, address| {
                let driver = if shard.uses_uring() { "io_uring" } else { "threads" };
                eprintln!("serving {} on {address}, files by {driver}", options.dir.display());
            })?)
        }
    }
}

fn check_directory(dir: &Path, depth: Depth, output: Option<Output>) -> Result<()> {
    let open =
        std::fs::File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    if !open.metadata()?.is_dir() {
        bail!("{} is not a directory", dir.display());
    }
    if let Err(std::fs::TryLockError::WouldBlock) = open.try_lock_shared() {
        bail!(
            "{} is being served; stop that first, what is read would change meanwhile",
            dir.display()
        );
    }
    let mut shown = 0;
    let mut progress = |at: block::store::CheckProgress| {
        let percent = at.done_regions * 100 / at.total_regions.max(1);
        if percent >= shown + 10 {
            shown = percent - percent % 10;
            eprintln!("{shown} %");
        }
    };
    let boot = Some(block::run::boot());
    let mut report = check_under(&mut Directory::read_only(dir), depth, boot, &mut progress);
    if report.meta.as_ref().is_some_and(|meta| meta.body.session > 0) {
        block::run::check_answered(dir).into_iter().for_each(|problem| report.add(problem));
    }
    if !report.is_replica() {
        return Err(NotReplica { dir: dir.to_owned() }.into());
    }
    match output {
        Some(Output::Json) => print(&(json(&report)?.to_string() + "\n"))?,
        None => print(&explain(&report))?,
    }
    match report.remedy() {
        None => Ok(()),
        Some(remedy) => bail!("the replica in {} is damaged: {remedy}", dir.display()),
    }
}

/// The directory is something else: that says nothing about any replica.
#[derive(Debug, thiserror::Error)]
#[error("not a replica directory: {} has no file \"super\"", dir.display())]
pub(crate) struct NotReplica {
    dir: PathBuf,
}

impl NotReplica {
    pub(crate) const EXIT_CODE: u8 = 3;
}

fn explain(report: &Report) -> String {
    let mut text = String::new();
    if let Some(meta) = &report.meta {
        text +=
            &format!("replica {} of volume {}, {} bytes\n", meta.replica, meta.volume, meta.size);
    }
    for layer in &report.layers {
        let name = layer
            .snapshot
            .as_deref()
            .map_or("head".to_owned(), |name| format!("snapshot {name:?}"));
        text += &format!("{}: {name}, {} blocks\n", layer.file, layer.blocks);
    }
    for finding in &report.findings {
        text += &format!("{finding}\n");
    }
    let worst = report.findings.iter().map(block::store::Finding::severity).max();
    text += match worst {
        Some(Severity::Error) => "damaged\n",
        Some(Severity::Warning) => "usable, with warnings\n",
        Some(Severity::Note) | None => "healthy\n",
    };
    text
}

fn json(report: &Report) -> Result<serde_json::Value> {
    let severity = |severity| match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            serde_json::json!({
                "severity": severity(finding.severity()),
                "message": finding.problem.to_string(),
            })
        })
        .collect();
    let layers: Vec<_> = report
        .layers
        .iter()
        .map(|layer| {
            serde_json::json!({
                "file": layer.file.to_string(),
                "snapshot": layer.snapshot,
                "blocks": layer.blocks,
            })
        })
        .collect();
    Ok(serde_json::json!({
        "healthy": report.is_healthy(),
        "volume": report.meta.as_ref().map(|meta| meta.volume.to_string()),
        "replica": report.meta.as_ref().map(|meta| meta.replica.to_string()),
        "size": report.meta.as_ref().map(|meta| meta.size),
        "checkedBlocks": report.checked_blocks,
        "layers": layers,
        "findings": findings,
    }))
}
