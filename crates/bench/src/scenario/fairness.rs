//! Two users, one of whom floods: what the other notices of it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::{CLIENTS, MAPS, map};
use crate::client::Client;
use crate::figures::{Figures, Limit, percentile};
use crate::process::Server;

const SAMPLES: usize = 1000;

pub(crate) async fn run(
    server: &Server,
    sheaf: &Path,
    data: &Path,
    figures: &mut Figures,
) -> Result<()> {
    let noisy = user(server, sheaf, data, "noisy").await?;
    let quiet = user(server, sheaf, data, "quiet").await?;
    server.client.connect().await?.send(Method::POST, MAPS, map("fair", 0)).await?;
    for (what, path) in [("gets", format!("{MAPS}/fair")), ("lists", format!("{MAPS}?limit=500"))] {
        let idle = p99(&quiet, &format!("{MAPS}/fair")).await?;
        let flood =
            Flood::start(&noisy, Method::GET, move |_| (path.clone(), Bytes::new())).await?;
        let busy = p99(&quiet, &format!("{MAPS}/fair")).await?;
        flood.stop().await?;
        tell(figures, what, idle, busy);
    }
    let idle = p99(&quiet, &format!("{MAPS}/fair")).await?;
    let flood = Flood::start(&noisy, Method::POST, |number| {
        (MAPS.to_owned(), map(&format!("flood-{number}"), number))
    })
    .await?;
    let busy = p99(&quiet, &format!("{MAPS}/fair")).await?;
    flood.stop().await?;
    tell(figures, "creates", idle, busy);
    Ok(())
}

fn tell(figures: &mut Figures, what: &str, idle: f64, busy: f64) {
    figures.add(format!("get p99 of one user, alone (before {what})"), idle, "ms");
    figures.add(format!("get p99 of one user, while another floods with {what}"), busy, "ms");
    let name = format!("the second as a multiple of the first ({what})");
    figures.held(name, busy / idle, "×", Limit::Most(5.0));
}

/// Somebody with a certificate and the right to edit.
async fn user(server: &Server, sheaf: &Path, data: &Path, name: &str) -> Result<Client> {
    let output = Command::new(sheaf)
        .args(["kubeconfig", "--user", name, "--data-dir"])
        .arg(data)
        .output()
        .context("cannot make a certificate")?;
    ensure!(output.status.success(), "cannot make a certificate for {name}");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("bench-{name}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let body = Bytes::from(binding.to_string());
    server.client.connect().await?.send(Method::POST, bindings, body).await?;
    let client = Client::from_kubeconfig(&String::from_utf8(output.stdout)?)?;
    // Rights are looked up in a copy, which follows in its own time.
    for _ in 0..1000 {
        if client.get(MAPS).await?.0 == 200 {
            return Ok(client);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("{name} may read nothing")
}

/// What a user notices who has a thread to themselves: in the runtime of those who flood, they
/// would wait for these in the bench and not in the server.
async fn p99(client: &Client, path: &str) -> Result<f64> {
    let (client, path) = (client.clone(), path.to_owned());
    let measured = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(gets(&client, &path))
    });
    measured.await?
}

async fn gets(client: &Client, path: &str) -> Result<f64> {
    let mut connection = client.connect().await?;
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        connection.expect(Method::GET, path, Bytes::new()).await?;
        samples.push(begun.elapsed());
        // A person or a controller, not a second flood.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(percentile(&mut samples, 0.99))
}

/// Requests from 64 connections, one after the other on each, until it is stopped.
struct Flood {
    over: Arc<AtomicBool>,
    workers: tokio::task::JoinSet<Result<()>>,
}

impl Flood {
    async fn start(
        client: &Client,
        method: Method,
        request: impl Fn(usize) -> (String, Bytes) + Clone + Send + 'static,
    ) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..CLIENTS {
            let mut connection = client.connect().await?;
            let (method, request, over) = (method.clone(), request.clone(), over.clone());
            workers.spawn(async move {
                let mut number = worker;
                while !over.load(Ordering::Relaxed) {
                    let (path, body) = request(number);
                    // Being sent away is part of it.
                    connection.send(method.clone(), &path, body).await?;
                    number += CLIENTS;
                }
                Ok(())
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(Self { over, workers })
    }

    async fn stop(mut self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        while let Some(worker) = self.workers.join_next().await {
            worker??;
        }
        Ok(())
    }
}
