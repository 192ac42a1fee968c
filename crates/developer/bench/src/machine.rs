//! The overhead of Sheaf on a machine's QEMU: on its start, its stop, its memory, its idle hours.
//!
//! The peer is QEMU itself, started by hand with the very command line that Sheaf uses, in turns
//! with Sheaf. The clock of Sheaf's side runs from before the request until a client that
//! watches learns that the machine runs; everything between is counted.

mod bare;
mod node;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::bare::{Bare, BareSetup, Recipe};
use self::node::MachineNode;
use crate::figures::{Figures, Limit, percentile};
use crate::process::{assemble, tool};
use crate::watch::{Watch, is_running};

const ROUNDS: usize = 9;
/// After which nothing of a start goes on any more.
const SETTLE: Duration = Duration::from_secs(15);
const IDLE: Duration = Duration::from_secs(30);
const TAPS: &str = "sbench-";

pub(crate) async fn run(sheaf: &Path, count: usize, figures: &mut Figures) -> Result<()> {
    let mut node = MachineNode::start(sheaf, assemble("idle").await?).await?;
    let recipe = single(&mut node, figures).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let empty = node.server.memory();
    figures.add("machines: memory without any", empty, "MB");
    let mut watch = node.watch().await?;
    let names = many(&mut node, &mut watch, &recipe, count, figures).await?;
    node.wait_for_output(count).await?;
    tokio::time::sleep(SETTLE).await;
    let memory = node.server.memory();
    let each = (memory - empty) / count as f64;
    figures.held(format!("{count} machines: memory"), memory, "MB", Limit::Most(100.0));
    figures.held(format!("{count} machines: memory for each"), each, "MB", Limit::Most(2.0));
    let before = node.server.cpu();
    tokio::time::sleep(IDLE).await;
    let used = node.server.cpu().saturating_sub(before).as_secs_f64() / IDLE.as_secs_f64();
    let name = format!("{count} idle machines: CPU, of one core");
    figures.held(name, used * 100.0, "%", Limit::Most(1.0));
    let begun = Instant::now();
    for name in &names {
        node.delete(name).await?;
    }
    let mut left = names;
    let gone = watch.until(|kind, vmi| {
        if kind == "DELETED" {
            left.remove(vmi["metadata"]["name"].as_str().unwrap_or_default());
        }
        left.is_empty()
    });
    gone.await?;
    figures.add(format!("{count} machines: all shut down and gone"), millis(&begun), "ms");
    Ok(())
}

/// One machine after the other, in turns with QEMU by hand.
async fn single(node: &mut MachineNode, figures: &mut Figures) -> Result<Recipe> {
    let mut samples: [Vec<Duration>; 5] = Default::default();
    let mut recipe = None;
    for round in 0..ROUNDS {
        let name = format!("one-{round}");
        let mut watch = node.watch().await?;
        let machine = node.machine(&name)?;
        let begun = Instant::now();
        node.create(machine).await?;
        watch.until_running(&name).await?;
        samples[0].push(begun.elapsed());
        node.wait_for_output(1).await?;
        let recipe = match &recipe {
            Some(recipe) => recipe,
            None => recipe.insert(Recipe::of_running(&node.machines(), &node.disk(&name))?),
        };
        let begun = Instant::now();
        node.set_strategy(&name, "Halted").await?;
        watch.until_gone(&name).await?;
        samples[1].push(begun.elapsed());
        let begun = Instant::now();
        node.set_strategy(&name, "Always").await?;
        watch.until_running(&name).await?;
        samples[2].push(begun.elapsed());
        node.wait_for_output(1).await?;
        node.delete(&name).await?;
        watch.until_gone(&name).await?;

        let place = BareSetup::prepare(node.dir(), 0, node.guest(), TAPS).await?;
        let begun = Instant::now();
        let mut bare = Bare::start(recipe, &place).await?;
        samples[3].push(begun.elapsed());
        bare.wait_for_output(&place).await?;
        let begun = Instant::now();
        bare.stop().await?;
        samples[4].push(begun.elapsed());
    }
    let [create, stop, start, bare_start, bare_stop] =
        samples.map(|mut each| percentile(&mut each, 0.5));
    figures.add("machine: create to Running", create, "ms");
    figures.add("machine: QEMU by hand to running", bare_start, "ms");
    let over = |name: &str, time: f64, figures: &mut Figures| {
        figures.held(format!("machine: {name}, over QEMU by hand"), time, "ms", Limit::Most(150.0));
    };
    over("create", create - bare_start, figures);
    over("start after a stop", start - bare_start, figures);
    figures.add("machine: stop to gone", stop, "ms");
    figures.add("machine: QEMU by hand from power button to exit", bare_stop, "ms");
    over("stop", stop - bare_stop, figures);
    recipe.context("no machine ran")
}

/// All at once, after as many by hand.
async fn many(
    node: &mut MachineNode,
    watch: &mut Watch,
    recipe: &Recipe,
    count: usize,
    figures: &mut Figures,
) -> Result<BTreeSet<String>> {
    let mut places = Vec::new();
    for number in 0..count {
        places.push(BareSetup::prepare(node.dir(), number, node.guest(), TAPS).await?);
    }
    let begun = Instant::now();
    let starts = places.iter().map(|place| Bare::start(recipe, place));
    let bare = futures_util::future::try_join_all(starts).await?;
    let by_hand = millis(&begun);
    drop((bare, places));
    let names: BTreeSet<String> = (0..count).map(|number| format!("many-{number:03}")).collect();
    let machines = names.iter().map(|name| node.machine(name)).collect::<Result<Vec<_>>>()?;
    let cpu = node.server.cpu();
    let begun = Instant::now();
    let mut running = BTreeSet::new();
    let (created, all) = tokio::join!(
        node.create_all(machines),
        watch.until(|_, vmi| {
            if is_running(vmi) {
                running.extend(vmi["metadata"]["name"].as_str().map(str::to_owned));
            }
            running.len() == count
        })
    );
    created?;
    all?;
    let ours = millis(&begun);
    let cpu = node.server.cpu().saturating_sub(cpu).as_secs_f64() * 1e3 / count as f64;
    figures.add(format!("{count} machines at once: all Running"), ours, "ms");
    figures.add(format!("{count} machines at once: QEMU by hand"), by_hand, "ms");
    figures.add(format!("{count} machines at once: CPU for each"), cpu, "ms");
    let name = format!("{count} machines at once / QEMU by hand");
    figures.held(name, ours / by_hand, "×", Limit::Most(2.0));
    Ok(names)
}

fn millis(since: &Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
