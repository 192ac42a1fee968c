//! Probes of a guest: readiness says whether it serves, liveness whether it may live on.

mod web;

use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Tasks};
use qemu::guest_agent::AgentError;
use serde_json::Value;
use tokio::sync::watch;
use tracing::{debug, info};
use virt::v1::Probe;

use super::guest::update;
use crate::machine::{DialError, GuestInfo, LiveMachine, Readiness, Vmi, dial};

/// Why a probe has failed.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("no answer within {seconds} s")]
    TimedOut { seconds: u64 },
    #[error("{value} is not a port")]
    Port { value: Value },
    #[error("the probe has no command")]
    NoCommand,
    #[error("the probe has no kind that is known")]
    UnknownKind,
    #[error("{program} ended with {status}")]
    Exit { program: String, status: i32 },
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Http(#[from] web::WebError),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// How often and how patiently is asked; upstream's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProbeTiming {
    delay: Duration,
    period: Duration,
    timeout: Duration,
    successes: u32,
    failures: u32,
}

impl ProbeTiming {
    fn of(probe: &Probe) -> Self {
        let count = |given: Option<i32>, default: u32| {
            given.and_then(|given| u32::try_from(given).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        let seconds = |given, default| Duration::from_secs(count(given, default).into());
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            successes: count(probe.success_threshold, 1),
            failures: count(probe.failure_threshold, 3),
        }
    }
}

/// Answers in a row, and what they amount to.
#[derive(Debug, Default)]
struct ProbeCounter {
    successes: u32,
    failures: u32,
}

impl ProbeCounter {
    /// True or false once there were enough answers of one kind in a row.
    fn count(&mut self, success: bool, rhythm: ProbeTiming) -> Option<bool> {
        if success {
            self.failures = 0;
            self.successes = self.successes.saturating_add(1);
            (self.successes >= rhythm.successes).then_some(true)
        } else {
            self.successes = 0;
            self.failures = self.failures.saturating_add(1);
            (self.failures >= rhythm.failures).then_some(false)
        }
    }
}

/// Starts the probes that the object asks for. They end with the machine.
pub(super) fn start(
    live: &LiveMachine,
    vmi: &Vmi,
    info: &Arc<watch::Sender<GuestInfo>>,
    tasks: &Tasks,
) {
    if let Some(probe) = vmi.spec.readiness_probe.clone() {
        let why = "the readiness probe has not succeeded yet".to_owned();
        update(info, |info| info.readiness = Readiness::Unready(why));
        let sender = Arc::clone(info);
        let verdict = move |ready: bool, why: String| {
            let readiness = if ready { Readiness::Ready } else { Readiness::Unready(why) };
            update(&sender, |info| info.readiness = readiness);
        };
        spawn(live, probe, tasks, verdict);
    }
    if let Some(probe) = vmi.spec.liveness_probe.clone() {
        let sender = Arc::clone(info);
        let verdict = move |alive: bool, why: String| {
            if !alive {
                info!(reason = why, "liveness probe failed");
                update(&sender, |info| info.condemned = Some(why));
            }
        };
        spawn(live, probe, tasks, verdict);
    }
}

fn spawn(
    live: &LiveMachine,
    probe: Probe,
    tasks: &Tasks,
    verdict: impl Fn(bool, String) + Send + 'static,
) {
    let (live, mut stop) = (live.clone(), tasks.stop_signal());
    tasks.spawn("probe", async move {
        tokio::select! {
            () = repeat(&live, &probe, verdict) => {}
            _ = live.running.exited() => {}
            () = stop.requested() => {}
        }
    });
}

async fn repeat(live: &LiveMachine, probe: &Probe, verdict: impl Fn(bool, String)) {
    let rhythm = ProbeTiming::of(probe);
    let mut tally = ProbeCounter::default();
    tokio::time::sleep(rhythm.delay).await;
    loop {
        let answer = match tokio::time::timeout(rhythm.timeout, ask(live, probe)).await {
            Ok(answer) => answer,
            Err(_) => Err(ProbeError::TimedOut { seconds: rhythm.timeout.as_secs() }),
        };
        let why = answer.as_ref().err().map(|failure| Chain(failure).to_string());
        if let Some(why) = &why {
            debug!(reason = why, "probe failed");
        }
        if let Some(success) = tally.count(answer.is_ok(), rhythm) {
            verdict(success, why.unwrap_or_default());
        }
        tokio::time::sleep(rhythm.period).await;
    }
}

async fn ask(live: &LiveMachine, probe: &Probe) -> Result<(), ProbeError> {
    if let Some(tcp) = &probe.tcp_socket {
        let port = port(&tcp.0["port"])?;
        return Ok(dial::tcp(live, port).await.map(drop)?);
    }
    if let Some(http) = &probe.http_get {
        let port = port(&http.0["port"])?;
        let stream = dial::tcp(live, port).await?;
        return Ok(web::get(stream, &http.0).await?);
    }
    if let Some(exec) = &probe.exec {
        let words = exec.0["command"].as_array().cloned().unwrap_or_default();
        let words: Vec<String> =
            words.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let Some((program, arguments)) = words.split_first() else {
            return Err(ProbeError::NoCommand);
        };
        // The caller's limit is the shorter one.
        let limit = Duration::from_secs(3600);
        let result = live.agent.run(program, arguments, limit).await;
        return match result?.status {
            Some(0) => Ok(()),
            status => {
                Err(ProbeError::Exit { program: program.clone(), status: status.unwrap_or(-1) })
            }
        };
    }
    if probe.guest_agent_ping.is_some() {
        let limit = Duration::from_secs(3600);
        return Ok(live.agent.ping(limit).await?);
    }
    Err(ProbeError::UnknownKind)
}

fn port(value: &Value) -> Result<u16, ProbeError> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let number = number.and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0);
    number.ok_or_else(|| ProbeError::Port { value: value.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rhythm(probe: Value) -> ProbeTiming {
        ProbeTiming::of(&serde_json::from_value(probe).unwrap())
    }

    #[test]
    fn a_verdict_takes_as_many_answers_in_a_row_as_asked() {
        let rhythm = rhythm(json!({"successThreshold": 2, "failureThreshold": 3}));
        let mut tally = ProbeCounter::default();
        let verdicts = [true, true, false, false, true, false, false, false]
            .map(|success| tally.count(success, rhythm));
        assert_eq!(verdicts, [None, Some(true), None, None, None, None, None, Some(false)]);
    }

    #[test]
    fn defaults_are_upstreams() {
        let default = rhythm(json!({}));
        assert_eq!((default.period.as_secs(), default.timeout.as_secs()), (10, 1));
        assert_eq!((default.successes, default.failures, default.delay.as_secs()), (1, 3, 0));
    }

    #[test]
    fn ports_are_numbers_however_they_are_written() {
        assert_eq!(port(&json!(80)).unwrap(), 80);
        assert_eq!(port(&json!("22")).unwrap(), 22);
        assert!(port(&json!("http")).is_err() && port(&json!(0)).is_err());
    }
}
