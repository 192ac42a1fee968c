//! Leader election on a Lease, as every Kubernetes controller does it: the holder renews,
//! the others wait until it has not done so for the whole lease.
//!
//! A holder that restarts with the same identity leads again at once, so that a restart
//! causes no delay; identities must therefore be unique among running candidates.

mod fence;
mod plan;

use std::future::Future;
use std::time::Duration;

use base::{Chain, Stop, clock};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use self::fence::TermFence;
use self::plan::{ElectionStep, LeaseRecord};
use crate::fault::Fault;

/// How long a holder that stops may take to give the lease back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Duration, renewal and retry intervals of a lease.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub lease: Duration,
    /// A holder that could not renew for this long stops leading.
    pub give_up: Duration,
    pub renew: Duration,
    /// How often waiting candidates check the lease.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            give_up: Duration::from_secs(10),
            renew: Duration::from_secs(5),
            retry: Duration::from_secs(2),
        }
    }
}

/// The lease of an election, and the candidate.
#[derive(Debug, Clone)]
pub struct Election {
    pub namespace: String,
    pub name: String,
    pub identity: String,
    pub timing: Timing,
}

/// A term of leadership, which ends when the lease is lost; cheap to clone.
#[derive(Debug, Clone)]
pub struct Term {
    over: watch::Receiver<bool>,
    fence: TermFence,
}

impl Term {
    /// Resolves when leadership is lost or a stop was requested.
    pub async fn over(&mut self) {
        let _ = self.over.wait_for(|over| *over).await;
    }

    /// A client whose writes are refused locally as soon as another candidate may lead.
    pub fn fenced(&self, client: Client) -> Client {
        self.fence.clone().guard(client)
    }
}

/// Runs for the lease until `stop`; calls `lead` for each term won and waits for it to
/// return after the term is over. Releases the lease at the end.
pub async fn campaign<F: Future<Output = ()>>(
    client: Client,
    election: Election,
    mut stop: Stop,
    mut lead: impl FnMut(Term) -> F,
) {
    let mut candidate = Candidate::new(client, election);
    while !stop.is_requested() {
        if !candidate.acquire(&mut stop).await {
            return;
        }
        info!(lease = candidate.election.name, "leading");
        let (over, term) = watch::channel(false);
        let work = lead(Term { over: term, fence: candidate.fence.clone() });
        tokio::pin!(work);
        tokio::select! {
            // The work should not end by itself; if it does, another candidate may lead.
            () = &mut work => {}
            () = candidate.hold() => {
                warn!(lease = candidate.election.name, "leadership lost");
                let _ = over.send(true);
                work.await;
                continue;
            }
            () = stop.requested() => {
                let _ = over.send(true);
                work.await;
            }
        }
        candidate.release().await;
    }
}

struct Candidate {
    leases: Api<Lease>,
    election: Election,
    /// The content of the lease when it last changed, and when that was seen here: clocks of
    /// different machines are never compared.
    seen: Option<(LeaseRecord, Instant)>,
    fence: TermFence,
}

impl Candidate {
    fn new(client: Client, election: Election) -> Self {
        let leases = Api::namespaced(client, &election.namespace);
        Self { leases, election, seen: None, fence: TermFence::default() }
    }

    /// Waits until the lease is ours; false if a stop was requested first.
    async fn acquire(&mut self, stop: &mut Stop) -> bool {
        loop {
            match self.attempt().await {
                Ok(true) => return !stop.is_requested(),
                Ok(false) => {}
                Err(failure) => {
                    warn!(lease = self.election.name, error = %Chain(&failure), "cannot acquire");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(self.election.timing.retry) => {}
                () = stop.requested() => return false,
            }
        }
    }

    /// Renews for as long as that works.
    async fn hold(&mut self) {
        let timing = self.election.timing;
        let mut renewed = Instant::now();
        loop {
            let pause = if renewed.elapsed() < timing.renew { timing.renew } else { timing.retry };
            tokio::time::sleep(pause).await;
            let limit = renewed + timing.give_up;
            match tokio::time::timeout_at(limit, self.attempt()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) | Err(_) => return,
                Ok(Err(failure)) => {
                    warn!(lease = self.election.name, error = %Chain(&failure), "cannot renew");
                    if Instant::now() >= limit {
                        return;
                    }
                }
            }
        }
    }

    /// Reads the lease and takes the planned step; true if the lease is ours now.
    async fn attempt(&mut self) -> Result<bool, Fault> {
        let found = self.leases.get_opt(&self.election.name).await?;
        let record = found.as_ref().map(plan::read);
        let now = Instant::now();
        if let Some(record) = &record
            && self.seen.as_ref().is_none_or(|(seen, _)| seen != record)
        {
            self.seen = Some((record.clone(), now));
        }
        let idle = self.seen.as_ref().map_or(Duration::ZERO, |(_, at)| now - *at);
        let step = plan::step(record.as_ref(), &self.election.identity, idle);
        let is_ours = self.write(step, found).await?;
        if is_ours {
            // Counted from before the write: others count from when they see it.
            self.fence.extend(now + self.election.timing.give_up);
        }
        Ok(is_ours)
    }

    async fn write(&self, step: ElectionStep, found: Option<Lease>) -> Result<bool, Fault> {
        let mut lease = found.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.election.name.clone()), ..Default::default() },
            spec: None,
        });
        plan::apply(
            step,
            lease.spec.get_or_insert_default(),
            &self.election.identity,
            self.election.timing.lease,
            MicroTime(clock::now()),
        );
        let params = PostParams::default();
        let result = match step {
            ElectionStep::Wait => return Ok(false),
            ElectionStep::Create => self.leases.create(&params, &lease).await,
            ElectionStep::Take | ElectionStep::Renew => {
                self.leases.replace(&self.election.name, &params, &lease).await
            }
        };
        match result {
            Ok(_) => Ok(true),
            // Another candidate was faster; the next attempt reads the new holder.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(failure) => Err(Fault(failure)),
        }
    }

    /// Lets the next holder begin without waiting for the lease to run out.
    async fn release(&self) {
        let (name, params) = (&self.election.name, PostParams::default());
        let release = async {
            loop {
                let Some(mut lease) = self.leases.get_opt(name).await? else { return Ok(()) };
                let spec = lease.spec.get_or_insert_default();
                if spec.holder_identity.as_deref() != Some(&*self.election.identity) {
                    return Ok(());
                }
                plan::release(spec, MicroTime(clock::now()));
                match self.leases.replace(name, &params, &lease).await {
                    // A renewal that was under way when the term ended came first.
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    result => return result.map(drop).map_err(Fault),
                }
            }
        };
        match tokio::time::timeout(RELEASE_TIMEOUT, release).await {
            Ok(Ok(())) => info!(lease = self.election.name, "lease released"),
            Ok(Err(failure)) => {
                warn!(lease = self.election.name, error = %Chain(&failure), "cannot release");
            }
            Err(_) => warn!(lease = self.election.name, "shutdown deadline reached before release"),
        }
    }
}
