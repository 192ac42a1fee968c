//! What a replicated volume costs, beside qemu-nbd on a raw file in the same minute.
//!
//! Each figure is the median of rounds that take turns, so that whatever else the machine does
//! hits all of them. Everything is as in production: checksums, replication, real processes.

mod lab;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::lab::{Load, Sample, Subject};
use crate::figures::{Figures, Limit};

const ROUNDS: usize = 3;

/// How much of each volume is used.
const SPAN: &str = "512m";
const SPAN_MIB: f64 = 512.0;

pub(crate) fn run(sheaf: &Path, seconds: u32, figures: &mut Figures) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let subjects = [
        Subject::qemu(dir.path())?,
        Subject::volume(sheaf, dir.path(), 1)?,
        Subject::volume(sheaf, dir.path(), 3)?,
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
    drop((one, three));
    scattered_rebuild(sheaf, figures)
}

/// One kind of load on all subjects.
fn compare(subjects: &[Subject; 3], load: &Load, figures: &mut Figures) -> Result<()> {
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

/// The slowest write around a snapshot, beside the slowest without one.
fn snapshot(volume: &Subject, figures: &mut Figures) -> Result<()> {
    let load = Load { rw: "randwrite", block: "4k", depth: 8, seconds: Some(4) };
    let quiet = volume.fio(&load)?;
    let (taken, busy) = std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            // In the middle of the load.
            std::thread::sleep(Duration::from_secs(2));
            let start = Instant::now();
            volume.ask(&["snapshot", "bench"]).map(|_| start.elapsed())
        });
        let busy = volume.fio(&load);
        (taking.join(), busy)
    });
    let taken = taken.map_err(|_| anyhow::anyhow!("taking a snapshot panicked"))??;
    figures.add("snapshot under load takes", taken.as_secs_f64() * 1e3, "ms");
    figures.add("slowest write without a snapshot", quiet.max_micros / 1e3, "ms");
    let limit = Limit::Most(20.0);
    figures.held("slowest write around a snapshot", busy?.max_micros / 1e3, "ms", limit);
    volume.ask(&["delete-snapshot", "bench"])?;
    Ok(())
}

fn rebuild(volume: &Subject, figures: &mut Figures) -> Result<()> {
    let took = volume.rebuild().context("cannot rebuild")?;
    let rate = SPAN_MIB / took.as_secs_f64();
    figures.held("rebuild of contiguous data", rate, "MiB/s", Limit::Least(250.0));
    Ok(())
}

/// Every second block has data.
fn scattered_rebuild(sheaf: &Path, figures: &mut Figures) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let volume = Subject::volume(sheaf, dir.path(), 3)?;
    volume.fio(&Load { rw: "write:4k", block: "4k", depth: 32, seconds: None })?;
    let took = volume.rebuild().context("cannot rebuild")?;
    let rate = SPAN_MIB / took.as_secs_f64();
    figures.held("rebuild of every second block", rate, "MiB/s", Limit::Least(100.0));
    Ok(())
}
