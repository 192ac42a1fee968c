//! The agent's commands that Sheaf uses, one method each.

use std::time::Duration;

use base::Backoff;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::types::{
    CommandResult, FileSystem, Info, Interface, OsInfo, Timezone, TrimmedPath, User,
};
use super::{AgentError, GuestAgent};

/// For questions that the agent answers from memory.
const QUICK: Duration = Duration::from_secs(5);
/// For freezing, which waits for the guest's disks.
const SLOW: Duration = Duration::from_secs(60);
/// For discards of whole disks.
const TRIM: Duration = Duration::from_secs(600);

#[derive(Deserialize)]
struct FsTrimReply {
    #[serde(default)]
    paths: Vec<TrimmedPath>,
}

#[derive(Deserialize)]
struct Pid {
    pid: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct AgentCommandStatus {
    exited: bool,
    exitcode: Option<i32>,
    signal: Option<i32>,
    out_data: Option<String>,
    err_data: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Hostname {
    host_name: String,
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<String>,
}

impl GuestAgent {
    pub async fn ping(&self, limit: Duration) -> Result<(), AgentError> {
        self.execute::<Value>("guest-ping", json!({}), limit).await.map(|_| ())
    }

    pub async fn info(&self) -> Result<Info, AgentError> {
        self.execute("guest-info", json!({}), QUICK).await
    }

    pub async fn os_info(&self) -> Result<OsInfo, AgentError> {
        self.execute("guest-get-osinfo", json!({}), QUICK).await
    }

    pub async fn users(&self) -> Result<Vec<User>, AgentError> {
        self.execute("guest-get-users", json!({}), QUICK).await
    }

    pub async fn file_systems(&self) -> Result<Vec<FileSystem>, AgentError> {
        self.execute("guest-get-fsinfo", json!({}), QUICK).await
    }

    pub async fn interfaces(&self) -> Result<Vec<Interface>, AgentError> {
        self.execute("guest-network-get-interfaces", json!({}), QUICK).await
    }

    pub async fn hostname(&self) -> Result<String, AgentError> {
        let answer: Hostname = self.execute("guest-get-host-name", json!({}), QUICK).await?;
        Ok(answer.host_name)
    }

    pub async fn timezone(&self) -> Result<Timezone, AgentError> {
        self.execute("guest-get-timezone", json!({}), QUICK).await
    }

    /// Holds back all writes; returns how many file systems are frozen.
    pub async fn freeze(&self) -> Result<u64, AgentError> {
        self.execute("guest-fsfreeze-freeze", json!({}), SLOW).await
    }

    pub async fn thaw(&self) -> Result<u64, AgentError> {
        self.execute("guest-fsfreeze-thaw", json!({}), SLOW).await
    }

    /// Discards the unused blocks of all mounted file systems.
    pub async fn trim(&self) -> Result<Vec<TrimmedPath>, AgentError> {
        let answer: FsTrimReply = self.execute("guest-fstrim", json!({}), TRIM).await?;
        Ok(answer.paths)
    }

    pub async fn is_frozen(&self) -> Result<bool, AgentError> {
        let status: String = self.execute("guest-fsfreeze-status", json!({}), QUICK).await?;
        Ok(status == "frozen")
    }

    /// Asks the guest to go down. The agent does not answer: it is going down as well.
    pub async fn shutdown(&self, mode: Shutdown) -> Result<(), AgentError> {
        let mode = match mode {
            Shutdown::PowerOff => "powerdown",
            Shutdown::Reboot => "reboot",
        };
        let sent = self.execute::<Value>("guest-shutdown", json!({ "mode": mode }), QUICK).await;
        match sent {
            Ok(_) | Err(AgentError::NoAnswer { .. }) => Ok(()),
            // A machine whose reboot ends it takes the channel down before the agent answers.
            Err(error) if error.is_disconnect() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sets the clock of the guest, and its hardware clock with it, to a time since 1970.
    pub async fn set_time(&self, since_epoch: Duration) -> Result<(), AgentError> {
        let nanoseconds = i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX);
        let arguments = json!({ "time": nanoseconds });
        self.execute::<Value>("guest-set-time", arguments, QUICK).await.map(drop)
    }

    pub async fn set_password(&self, user: &str, password: &str) -> Result<(), AgentError> {
        let arguments = json!({
            "username": user,
            "password": STANDARD.encode(password),
            "crypted": false,
        });
        self.execute::<Value>("guest-set-user-password", arguments, QUICK).await.map(|_| ())
    }

    pub async fn authorized_keys(&self, user: &str) -> Result<Vec<String>, AgentError> {
        let arguments = json!({ "username": user });
        let answer: Keys = self.execute("guest-ssh-get-authorized-keys", arguments, QUICK).await?;
        Ok(answer.keys)
    }

    /// Lets the holders of `keys` log in as `user`; with `replace` no others.
    pub async fn add_authorized_keys(
        &self,
        user: &str,
        keys: &[String],
        replace: Replace,
    ) -> Result<(), AgentError> {
        let reset = replace == Replace::All;
        let arguments = json!({ "username": user, "keys": keys, "reset": reset });
        self.execute::<Value>("guest-ssh-add-authorized-keys", arguments, QUICK).await.map(|_| ())
    }

    /// Runs a program in the guest and waits for it. The guest is not notified when `limit` is
    /// over: the program goes on.
    pub async fn run(
        &self,
        program: &str,
        arguments: &[String],
        limit: Duration,
    ) -> Result<CommandResult, AgentError> {
        let command = "guest-exec";
        let exec = json!({ "path": program, "arg": arguments, "capture-output": true });
        let finished = async {
            let started: Pid = self.execute(command, exec, limit).await?;
            // The agent does not report the end of a program; it has to be asked.
            let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
            loop {
                let pid = json!({ "pid": started.pid });
                let status: AgentCommandStatus =
                    self.execute("guest-exec-status", pid, limit).await?;
                if status.exited {
                    return Ok(status.into());
                }
                tokio::time::sleep(backoff.delay()).await;
            }
        };
        tokio::time::timeout(limit, finished)
            .await
            .map_err(|_| AgentError::NoAnswer { command: command.to_owned(), limit })?
    }
}

impl From<AgentCommandStatus> for CommandResult {
    fn from(status: AgentCommandStatus) -> Self {
        let decode = |data: Option<String>| {
            data.and_then(|data| STANDARD.decode(data).ok()).unwrap_or_default()
        };
        Self {
            status: status.exitcode,
            signal: status.signal,
            stdout: decode(status.out_data),
            stderr: decode(status.err_data),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    PowerOff,
    Reboot,
}

/// Whether keys that are there already stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    Nothing,
    All,
}
