//! The scenarios, in the order of a server's life.

mod crds;
mod fairness;
mod rest;
mod watchers;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http::Method;
use serde_json::json;

use crate::Args;
use crate::client::Client;
use crate::figures::{Figures, Limit, percentile};
use crate::peer;
use crate::process::Server;

/// How many requests a scenario with one client makes.
const SINGLE: usize = 500;
const CLIENTS: usize = 64;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) async fn run(args: &Args, sheaf: &Path, figures: &mut Figures) -> Result<()> {
    let etcd = if args.etcd { Some(crate::process::Etcd::start().await?) } else { None };
    let more: Vec<String> = etcd.iter().flat_map(|etcd| etcd.arguments()).collect();
    let dir = tempfile::tempdir()?;
    let server = Server::start(sheaf, dir.path(), &more).await?;
    if args.only == Some(crate::Part::Fairness) {
        fairness::run(&server, sheaf, dir.path(), figures).await?;
        return server.stop().await.map(drop);
    }
    if args.only == Some(crate::Part::Rest) {
        rest::run(&server, sheaf, dir.path(), figures).await?;
        return server.stop().await.map(drop);
    }
    figures.held(
        "ready after start, empty data dir",
        millis(server.started_in),
        "ms",
        Limit::Most(300.0),
    );
    crds::install(&server.client, 60).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    figures.held("idle memory with 60 CRDs", server.memory(), "MB", Limit::Most(40.0));
    idle(&server, figures).await;
    creates(&server, args.objects, figures).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    figures.held(
        format!("memory with {} objects of 4 KB", args.objects),
        server.memory(),
        "MB",
        Limit::Most(150.0),
    );
    reads(&server, figures).await?;
    patches(&server, args.objects - SINGLE, figures).await?;
    watchers::run(&server, args.watchers, figures).await?;
    fairness::run(&server, sheaf, dir.path(), figures).await?;
    rest::run(&server, sheaf, dir.path(), figures).await?;
    figures.add("memory after all of it", server.memory(), "MB");
    figures.held("stop after SIGTERM", millis(server.stop().await?), "ms", Limit::Most(2000.0));
    restart(args, sheaf, dir.path(), &more, figures).await
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

async fn idle(server: &Server, figures: &mut Figures) {
    let before = server.cpu();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let used = server.cpu().saturating_sub(before);
    figures.add("idle CPU", used.as_secs_f64() / 10.0 * 100.0, "%");
}

/// A ConfigMap of about 4 KB.
fn map(name: &str, number: usize) -> Bytes {
    let filler: String =
        (0..3_900).map(|at| char::from(b'a' + ((at * 7 + number) % 26) as u8)).collect();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"part": format!("{}", number % 100)}},
        "data": {"filler": filler},
    });
    Bytes::from(map.to_string())
}

async fn creates(server: &Server, objects: usize, figures: &mut Figures) -> Result<()> {
    let mut one = server.client.connect().await?;
    let mut samples = Vec::new();
    for number in 0..SINGLE {
        let body = map(&format!("single-{number:05}"), number);
        let begun = Instant::now();
        one.expect(Method::POST, MAPS, body).await?;
        samples.push(begun.elapsed());
    }
    figures.held("create p50 at 1 client", percentile(&mut samples, 0.5), "ms", Limit::Most(2.0));
    figures.add("create p99 at 1 client", percentile(&mut samples, 0.99), "ms");
    let (rate, cpu) = flood(server, objects - SINGLE, Method::POST, |number| {
        (MAPS.to_owned(), map(&format!("many-{number:06}"), number))
    })
    .await?;
    figures.held("durable creates/s at 64 clients", rate, "/s", Limit::Least(3000.0));
    figures.add("CPU per create", cpu, "µs");
    if let Some(puts) = figures.value(peer::PUTS) {
        figures.add("creates/s as a share of etcd's bare puts/s", rate / puts * 100.0, "%");
    }
    Ok(())
}

/// `count` requests from 64 connections: requests per second, and CPU µs of the server each.
async fn flood(
    server: &Server,
    count: usize,
    method: Method,
    request: impl Fn(usize) -> (String, Bytes) + Clone + Send + 'static,
) -> Result<(f64, f64)> {
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(server.client.connect().await?);
    }
    let (before, begun) = (server.cpu(), Instant::now());
    let mut workers = tokio::task::JoinSet::new();
    for (worker, mut connection) in connections.into_iter().enumerate() {
        let (method, request) = (method.clone(), request.clone());
        workers.spawn(async move {
            for number in (worker..count).step_by(CLIENTS) {
                let (path, body) = request(number);
                connection.expect(method.clone(), &path, body).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    let took = begun.elapsed();
    let cpu = server.cpu().saturating_sub(before);
    Ok((count as f64 / took.as_secs_f64(), cpu.as_secs_f64() * 1e6 / count as f64))
}

async fn reads(server: &Server, figures: &mut Figures) -> Result<()> {
    let (rate, cpu) = flood(server, 20_000, Method::GET, |number| {
        (format!("{MAPS}/single-{:05}", number % SINGLE), Bytes::new())
    })
    .await?;
    figures.add("gets/s at 64 clients", rate, "/s");
    figures.add("CPU per get", cpu, "µs");
    let lists = [
        ("list of everything", "", Some(200.0)),
        ("list from memory (resourceVersion=0)", "?resourceVersion=0", None),
        ("list of 1 % by label", "?labelSelector=part%3D7", None),
        ("list of a page of 500", "?limit=500", None),
    ];
    for (name, query, limit) in lists {
        let (before, path) = (server.cpu(), format!("{MAPS}{query}"));
        let mut samples = Vec::new();
        for _ in 0..7 {
            samples.push(timed(&server.client, &path).await?);
        }
        let median = percentile(&mut samples, 0.5);
        match limit {
            Some(most) => figures.held(format!("{name}, median"), median, "ms", Limit::Most(most)),
            None => figures.add(format!("{name}, median"), median, "ms"),
        }
        let cpu = server.cpu().saturating_sub(before);
        figures.add(format!("{name}, CPU"), millis(cpu) / 7.0, "ms");
    }
    Ok(())
}

async fn timed(client: &Client, path: &str) -> Result<Duration> {
    let mut connection = client.connect().await?;
    let begun = Instant::now();
    connection.expect(Method::GET, path, Bytes::new()).await?;
    Ok(begun.elapsed())
}

async fn patches(server: &Server, objects: usize, figures: &mut Figures) -> Result<()> {
    let (rate, cpu) = flood(server, 5_000, Method::PATCH, move |number| {
        let patch = json!({"metadata": {"annotations": {"touched": format!("{number}")}}});
        (format!("{MAPS}/many-{:06}", number % objects), Bytes::from(patch.to_string()))
    })
    .await?;
    figures.add("merge patches/s at 64 clients", rate, "/s");
    figures.add("CPU per merge patch", cpu, "µs");
    Ok(())
}

async fn restart(
    args: &Args,
    sheaf: &Path,
    dir: &Path,
    more: &[String],
    figures: &mut Figures,
) -> Result<()> {
    let server = Server::start(sheaf, dir, more).await?;
    let missing = args.restart_objects.saturating_sub(args.objects);
    flood(&server, missing, Method::POST, |number| {
        (MAPS.to_owned(), map(&format!("more-{number:06}"), number))
    })
    .await?;
    server.stop().await?;
    let server = Server::start(sheaf, dir, more).await?;
    figures.held(
        format!("ready after start with {} objects", args.restart_objects),
        millis(server.started_in),
        "ms",
        Limit::Most(2000.0),
    );
    figures.add(format!("memory with {} objects", args.restart_objects), server.memory(), "MB");
    server.stop().await?;
    Ok(())
}
