//! Requests that are answered at once: reads from a guest, and actions on it.

use std::time::Duration;

use base::Chain;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use qemu::guest_agent::{AgentError, FileSystem, Info, Shutdown, User};
use qemu::qmp::QmpError;
use serde_json::{Value, json};
use tracing::warn;

use super::response::{EndpointError, ResponseBody, content, done, json as json_body};
use super::route::{GuestAction, Read};
use crate::machine::LiveMachine;
use crate::vmi::{is_arriving, os_info};

/// Options are a few fields.
const LARGEST_OPTIONS: usize = 64 << 10;
/// Upstream's: a guest is not left frozen for longer unless a client asks for it.
const FROZEN: Duration = Duration::from_secs(300);
/// For the agent to say that it is there, before something else is tried.
const PING: Duration = Duration::from_secs(2);

pub(super) async fn read(
    live: &LiveMachine,
    what: Read,
) -> Result<Response<ResponseBody>, EndpointError> {
    match what {
        Read::Screenshot => match live.running.screenshot().await {
            Ok(picture) => Ok(content("image/png", picture)),
            Err(failure) => Err(EndpointError::internal(&failure)),
        },
        Read::Log => {
            let console = live.running.dir().serial_log();
            let log = tokio::task::spawn_blocking(move || {
                // Earlier output that was rotated is in the file beside it.
                let mut log = std::fs::read(console.with_extension("log.1")).unwrap_or_default();
                log.extend(std::fs::read(console).unwrap_or_default());
                log
            });
            Ok(content("text/plain; charset=utf-8", log.await.unwrap_or_default()))
        }
        Read::GuestOsInfo => guest_info(live).await,
        Read::UserList => {
            let users = live.agent.users().await.map_err(silent)?;
            let items: Vec<Value> = users.iter().map(user).collect();
            Ok(json_body(&list("VirtualMachineInstanceGuestOSUserList", items)))
        }
        Read::FilesystemList => {
            let systems = live.agent.file_systems().await.map_err(silent)?;
            let items: Vec<Value> = systems.iter().map(file_system).collect();
            Ok(json_body(&list("VirtualMachineInstanceFileSystemList", items)))
        }
    }
}

/// An absent agent is reported in upstream's words.
fn silent(failure: AgentError) -> EndpointError {
    match failure {
        AgentError::Refused { .. } => EndpointError::internal(&failure),
        _ => EndpointError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "VMI does not have guest agent connected",
        ),
    }
}

fn undone(command: &str, failure: &AgentError) -> EndpointError {
    EndpointError::new(StatusCode::INTERNAL_SERVER_ERROR, failed_command(command, failure))
}

/// The error of a command, in the format of KubeVirt's launcher.
fn failed_command(command: &str, failure: &AgentError) -> String {
    let why = match failure {
        AgentError::Refused { .. } => Chain(failure).to_string(),
        _ => "QEMU guest agent is not connected".to_owned(),
    };
    format!("server error. command {command} failed: {why:?}")
}

async fn guest_info(live: &LiveMachine) -> Result<Response<ResponseBody>, EndpointError> {
    let agent = &live.agent;
    let known: Info = agent.info().await.map_err(silent)?;
    // Fields whose question fails are left out.
    let os = agent.os_info().await.map(os_info).unwrap_or_default();
    let users = agent.users().await.unwrap_or_default();
    let systems = agent.file_systems().await.unwrap_or_default();
    let commands: Vec<Value> = known
        .supported_commands
        .iter()
        .map(|command| json!({"name": command.name, "enabled": command.enabled}))
        .collect();
    let mut info = json!({
        "apiVersion": "subresources.kubevirt.io/v1",
        "kind": "VirtualMachineInstanceGuestAgentInfo",
        "guestAgentVersion": known.version,
        "supportedCommands": commands,
        "os": os,
        "userList": users.iter().map(user).collect::<Vec<_>>(),
        "fsInfo": {"disks": systems.iter().map(file_system).collect::<Vec<_>>()},
    });
    if let Ok(hostname) = agent.hostname().await {
        info["hostname"] = hostname.into();
    }
    if let Ok(timezone) = agent.timezone().await {
        info["timezone"] = format!("{}, {}", timezone.zone, timezone.offset).into();
    }
    if agent.is_frozen().await.unwrap_or(false) {
        info["fsFreezeStatus"] = "frozen".into();
    }
    Ok(json_body(&info))
}

fn list(kind: &str, items: Vec<Value>) -> Value {
    json!({"apiVersion": "subresources.kubevirt.io/v1", "kind": kind, "metadata": {}, "items": items})
}

fn user(user: &User) -> Value {
    json!({"userName": user.user, "domain": user.domain, "loginTime": user.login_time})
}

fn file_system(system: &FileSystem) -> Value {
    let disks: Vec<Value> = system
        .disk
        .iter()
        .map(|disk| json!({"serial": disk.serial, "busType": disk.bus_type}))
        .collect();
    json!({
        "diskName": system.name,
        "mountPoint": system.mountpoint,
        "fileSystemType": system.kind,
        "usedBytes": system.used_bytes.unwrap_or(0),
        "totalBytes": system.total_bytes.unwrap_or(0),
        "disk": disks,
    })
}

pub(super) async fn act(
    live: &LiveMachine,
    what: GuestAction,
    body: Incoming,
) -> Result<Response<ResponseBody>, EndpointError> {
    let options = http_body_util::Limited::new(body, LARGEST_OPTIONS).collect().await;
    let options = options.map_err(|_| {
        EndpointError::new(StatusCode::PAYLOAD_TOO_LARGE, "the options are too long")
    })?;
    let options = serde_json::from_slice(&options.to_bytes()).unwrap_or(Value::Null);
    let failed = |failure: QmpError| EndpointError::internal(&failure);
    let qmp = live.running.qmp().await.map_err(failed)?;
    match what {
        GuestAction::Pause => qmp.pause().await.map_err(failed)?,
        GuestAction::Unpause if is_arriving(live.running.dir()) => {
            let why = "the guest is migrating to this node and goes on by itself";
            return Err(EndpointError::new(StatusCode::CONFLICT, why));
        }
        GuestAction::Unpause => {
            qmp.resume().await.map_err(failed)?;
            live.set_clock_soon();
        }
        GuestAction::Reset => qmp.reset().await.map_err(failed)?,
        // An agent reboots; without one the power button must do, and the guest ends.
        GuestAction::SoftReboot => match live.agent.ping(PING).await {
            Ok(()) => live.agent.shutdown(Shutdown::Reboot).await.map_err(silent)?,
            Err(_) => qmp.power_down().await.map_err(failed)?,
        },
        GuestAction::Freeze => freeze(live, &options).await?,
        GuestAction::Unfreeze => {
            live.agent.thaw().await.map_err(|failure| undone("Unfreeze", &failure))?;
            live.ask_again();
        }
    }
    Ok(done())
}

/// Freezes the guest's file systems, and thaws them if no client does in time.
async fn freeze(live: &LiveMachine, options: &Value) -> Result<(), EndpointError> {
    live.agent.freeze().await.map_err(|failure| undone("Freeze", &failure))?;
    live.ask_again();
    let limit = options["unfreezeTimeout"].as_str().and_then(span).unwrap_or(FROZEN);
    if limit.is_zero() {
        return Ok(());
    }
    let (live, mut stop) = (live.clone(), live.running.tasks().stop_signal());
    live.running.tasks().clone().spawn("thaw", async move {
        tokio::select! {
            () = tokio::time::sleep(limit) => {}
            _ = live.running.exited() => return,
            () = stop.requested() => {}
        }
        if live.agent.is_frozen().await.unwrap_or(false) {
            warn!("file system freeze timed out; thawing guest");
            if let Err(failure) = live.agent.thaw().await {
                warn!(error = %Chain(&failure), "cannot thaw a guest's file systems");
            }
            live.ask_again();
        }
    });
    Ok(())
}

/// A span of time as Go writes it: `5m0s`, `1h`, `500ms`.
fn span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |length| digits + length);
        let unit = match &rest[digits..unit_end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number * unit).ok()?;
        rest = &rest[unit_end..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_without_an_agent_is_reported_as_upstream_does() {
        assert_eq!(
            failed_command("Freeze", &AgentError::Closed),
            "server error. command Freeze failed: \"QEMU guest agent is not connected\""
        );
        let refused = AgentError::Refused {
            command: "guest-fsfreeze-freeze".into(),
            class: "GenericError".into(),
            description: "busy".into(),
        };
        let text = failed_command("Freeze", &refused);
        assert!(text.contains("the guest agent refused guest-fsfreeze-freeze: busy"), "{text}");
    }

    #[test]
    fn spans_are_read_as_go_writes_them() {
        for (text, seconds) in [
            ("5m0s", Some(300.0)),
            ("1h1m", Some(3660.0)),
            ("500ms", Some(0.5)),
            ("0s", Some(0.0)),
            ("x", None),
            ("5", None),
        ] {
            assert_eq!(span(text).map(|span| span.as_secs_f64()), seconds, "{text}");
        }
    }
}
