//! The cost of a replicated volume, beside qemu-nbd on a raw file in the same minute.
//!
//! Each figure is the median of rounds that take turns, so that whatever else the machine does
//! hits all of them. Everything is as in production: checksums, replication, real processes.

mod guest;
mod idle;
pub(crate) mod lab;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::lab::{Load, Sample, VolumeServer};
use crate::figures::{Figures, Limit};

const ROUNDS: usize = 3;

/// How much of each volume is used.
const SPAN: &str = "512m";
const SPAN_MIB: f64 = 512.0;

pub(crate) fn run(sheaf: &Path, seconds: u32, figures: &mut Figures) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let subjects = [
        VolumeServer::qemu(dir.path())?,
        VolumeServer::volume(sheaf, dir.path(), 1)?,
        VolumeServer::volume(sheaf, dir.path(), 3)?,
    ];
    figures.add("volume: engine with one replica, idle memory", subjects[1].memory(), "MB");
    figures.add("volume: engine and 3 replicas, idle memory", subjects[2].memory(), "MB");
    for subject in &subjects {
        subject.fio(&Load { rw: "write", block: "1m", depth: 4, seconds: None })?;
    }
    for block in ["4k", "1m"] {
        for depth in [1, 32] {
            for rw in ["randread", "randwrite"] {
                let load = Load { rw, block, depth, seconds: Some(seconds) };
                compare(&subjects, &load, figures)?;
            }
        }
    }
    snapshot(&subjects[2], figures)?;
    rebuild(&subjects[2], figures)?;
    let [_, one, three] = subjects;
    drop(three);
    shared_memory(&one, seconds, figures)?;
    drop(one);
    scattered_rebuild(sheaf, figures)?;
    idle::measure(sheaf, figures)
}

/// The same volume over NBD and over memory that is shared, in turns.
fn shared_memory(volume: &VolumeServer, seconds: u32, figures: &mut Figures) -> Result<()> {
    let mut guest = guest::Guest::connect(&volume.vhost)?;
    let (span, time) = (512 << 20, Duration::from_secs(seconds.into()));
    for (block, bytes) in [("4k", 4096), ("1m", 1 << 20)] {
        for depth in [1, 32] {
            for rw in ["randread", "randwrite"] {
                let load = Load { rw, block, depth, seconds: Some(seconds) };
                let (mut nbd, mut vhost) = (Vec::new(), Vec::new());
                for _ in 0..ROUNDS {
                    nbd.push(volume.fio(&load)?);
                    let before = volume.cpu();
                    let speed = guest.load(rw == "randwrite", bytes, depth as usize, span, time)?;
                    let cpu = volume.cpu().saturating_sub(before);
                    vhost.push((cpu.as_secs_f64() * 1e6 / speed.requests.max(1.0), speed));
                }
                nbd.sort_by(|a, b| a.iops.total_cmp(&b.iops));
                vhost.sort_by(|a, b| a.1.iops.total_cmp(&b.1.iops));
                let (cpu, speed) = &vhost[ROUNDS / 2];
                let name = format!("{block} {rw} at QD {depth}, vhost");
                figures.add(name.clone(), speed.iops, "IOPS");
                figures.add(format!("{name}: p50"), speed.p50_micros, "µs");
                figures.add(format!("{name}: p99"), speed.p99_micros, "µs");
                figures.add(format!("{name}: CPU per request"), *cpu, "µs");
                let ratio = speed.iops / nbd[ROUNDS / 2].iops;
                figures.held(format!("{name} / NBD"), ratio, "×", Limit::Least(1.0));
            }
        }
    }
    Ok(())
}

/// One kind of load on all subjects.
fn compare(subjects: &[VolumeServer; 3], load: &Load, figures: &mut Figures) -> Result<()> {
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (subject, samples) in subjects.iter().zip(&mut samples) {
            samples.push(subject.fio(load)?);
        }
    }
    let name = format!("{} {} at QD {}", load.block, load.rw, load.depth);
    let median = |at: usize, of: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples[at].iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    for (at, who) in ["qemu-nbd", "1 replica", "3 replicas"].into_iter().enumerate() {
        figures.add(format!("{name}, {who}"), median(at, |it| it.iops), "IOPS");
        figures.add(format!("{name}, {who}: p50"), median(at, |it| it.p50_micros), "µs");
        figures.add(format!("{name}, {who}: p99"), median(at, |it| it.p99_micros), "µs");
        let cpu = median(at, |it| it.cpu_micros);
        let title = format!("{name}, {who}: CPU per request");
        match (at, load.block, load.rw) {
            (2, "4k", "randwrite") => figures.held(title, cpu, "µs", Limit::Most(60.0)),
            _ => figures.add(title, cpu, "µs"),
        }
    }
    let base = median(0, |it| it.iops);
    for (at, who, least) in [(1, "1 replica", 0.8), (2, "3 replicas", 0.5)] {
        let ratio = median(at, |it| it.iops) / base;
        figures.held(format!("{name}, {who} / qemu-nbd"), ratio, "×", Limit::Least(least));
    }
    Ok(())
}

/// The slowest write around a snapshot, beside the slowest without one: the median of some, so
/// that what else the machine does is not taken for it.
fn snapshot(volume: &VolumeServer, figures: &mut Figures) -> Result<()> {
    const TIMES: usize = 5;
    let load = Load { rw: "randwrite", block: "4k", depth: 8, seconds: Some(2) };
    let (mut quiet, mut busy, mut took) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        quiet.push(volume.fio(&load)?.max_micros / 1e3);
        let (taken, loaded) = std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                // In the middle of the load.
                std::thread::sleep(Duration::from_secs(1));
                let start = Instant::now();
                volume.ask(&["snapshot", "bench"]).map(|_| start.elapsed())
            });
            let loaded = volume.fio(&load);
            (taking.join(), loaded)
        });
        let taken = taken.map_err(|_| anyhow::anyhow!("taking a snapshot panicked"))??;
        took.push(taken.as_secs_f64() * 1e3);
        busy.push(loaded?.max_micros / 1e3);
        volume.ask(&["delete-snapshot", "bench"])?;
    }
    for values in [&mut quiet, &mut busy, &mut took] {
        values.sort_by(f64::total_cmp);
    }
    figures.add("snapshot under load takes", took[TIMES / 2], "ms");
    figures.add("slowest write without a snapshot", quiet[TIMES / 2], "ms");
    let limit = Limit::Most(20.0);
    figures.held("slowest write around a snapshot", busy[TIMES / 2], "ms", limit);
    Ok(())
}

fn rebuild(volume: &VolumeServer, figures: &mut Figures) -> Result<()> {
    let took = volume.rebuild().context("cannot rebuild")?;
    let rate = SPAN_MIB / took.as_secs_f64();
    figures.held("rebuild of contiguous data", rate, "MiB/s", Limit::Least(250.0));
    Ok(())
}

/// Every second block has data.
fn scattered_rebuild(sheaf: &Path, figures: &mut Figures) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let volume = VolumeServer::volume(sheaf, dir.path(), 3)?;
    volume.fio(&Load { rw: "write:4k", block: "4k", depth: 32, seconds: None })?;
    let took = volume.rebuild().context("cannot rebuild")?;
    let rate = SPAN_MIB / took.as_secs_f64();
    figures.held("rebuild of every second block", rate, "MiB/s", Limit::Least(100.0));
    Ok(())
}
