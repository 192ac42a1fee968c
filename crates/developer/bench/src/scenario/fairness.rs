//! Two users, one of whom floods: the effect on the other.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    let one = format!("{MAPS}/fair");
    let get = |path: String| move |_| (path.clone(), Bytes::new());
    let list = get(format!("{MAPS}?limit=500"));
    let create = |number| (MAPS.to_owned(), map(&format!("flood-{number}"), number));
    notice(figures, "gets", &quiet, &one, Flood::new(&noisy, Method::GET, get(one.clone())))
        .await?;
    // Exempt requests are never rejected, but yield all the same.
    let exempt = Flood::new(&server.client, Method::GET, list.clone());
    notice(figures, "lists", &quiet, &one, Flood::new(&noisy, Method::GET, list)).await?;
    notice(figures, "an administrator's lists", &quiet, &one, exempt).await?;
    notice(figures, "creates", &quiet, &one, Flood::new(&noisy, Method::POST, create)).await
}

/// Measures the effect of a flood on the quiet user, and of the quiet user on the flood.
pub(super) async fn notice<R: NumberedRequest>(
    figures: &mut Figures,
    what: &str,
    quiet: &Client,
    path: &str,
    flood: Flood<R>,
) -> Result<()> {
    let mut idle = samples(quiet, path).await?;
    let flood = flood.start().await?;
    let (begun, served) = (Instant::now(), flood.served());
    let mut busy = samples(quiet, path).await?;
    let beside = flood.rate(begun, served);
    // The server remembers for a second that another user was active.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let (begun, served) = (Instant::now(), flood.served());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let alone = flood.rate(begun, served);
    flood.stop().await?;
    // How long an idle machine takes to wake up changes from one second to the next.
    idle.extend(samples(quiet, path).await?);
    let (idle, busy) = (percentile(&mut idle, 0.99), percentile(&mut busy, 0.99));
    figures.add(format!("get p99 of one user, alone (before and after {what})"), idle, "ms");
    figures.add(format!("get p99 of one user, while another floods with {what}"), busy, "ms");
    let name = format!("the second as a multiple of the first ({what})");
    figures.held(name, busy / idle, "×", Limit::Most(5.0));
    figures.add(format!("a flood with {what}: answers meanwhile"), beside, "/s");
    figures.add(format!("a flood with {what}: answers once it is alone"), alone, "/s");
    Ok(())
}

/// A user with a certificate and the right to edit.
pub(super) async fn user(server: &Server, sheaf: &Path, data: &Path, name: &str) -> Result<Client> {
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
    // Another scenario may have made it.
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

/// The latencies of a user with a thread of its own: in the runtime of the flooding clients it
/// would wait for them in the bench and not in the server.
async fn samples(client: &Client, path: &str) -> Result<Vec<Duration>> {
    let (client, path) = (client.clone(), path.to_owned());
    let measured = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(gets(&client, &path))
    });
    measured.await?
}

async fn gets(client: &Client, path: &str) -> Result<Vec<Duration>> {
    let mut connection = client.connect().await?;
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        connection.expect(Method::GET, path, Bytes::new()).await?;
        samples.push(begun.elapsed());
        // A person or a controller, not a second flood.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(samples)
}

/// Makes the request of a number: a path and a body.
pub(super) trait NumberedRequest:
    Fn(usize) -> (String, Bytes) + Clone + Send + 'static
{
}
impl<R: Fn(usize) -> (String, Bytes) + Clone + Send + 'static> NumberedRequest for R {}

/// Requests from 64 connections, one after the other on each, until it is stopped.
pub(super) struct Flood<R> {
    client: Client,
    method: Method,
    request: R,
}

impl<R: NumberedRequest> Flood<R> {
    pub(super) fn new(client: &Client, method: Method, request: R) -> Self {
        Self { client: client.clone(), method, request }
    }

    async fn start(self) -> Result<Flooding> {
        let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..CLIENTS {
            let mut connection = self.client.connect().await?;
            let (method, request) = (self.method.clone(), self.request.clone());
            let (over, served) = (over.clone(), served.clone());
            workers.spawn(async move {
                let mut number = worker;
                while !over.load(Ordering::Relaxed) {
                    let (path, body) = request(number);
                    // Being sent away is part of it.
                    connection.send(method.clone(), &path, body).await?;
                    served.fetch_add(1, Ordering::Relaxed);
                    number += CLIENTS;
                }
                Ok(())
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(Flooding { over, served, workers })
    }
}

struct Flooding {
    over: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    workers: tokio::task::JoinSet<Result<()>>,
}

impl Flooding {
    fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }

    /// Answers per second since then, when there had been so many.
    fn rate(&self, begun: Instant, served: usize) -> f64 {
        (self.served() - served) as f64 / begun.elapsed().as_secs_f64()
    }

    async fn stop(mut self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        while let Some(worker) = self.workers.join_next().await {
            worker??;
        }
        Ok(())
    }
}
