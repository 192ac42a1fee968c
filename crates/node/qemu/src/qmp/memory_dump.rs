//! A dump of the guest's memory as an ELF core file, written to a descriptor.

use std::os::fd::OwnedFd;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::{Event, Qmp, QmpError};

/// The name under which QEMU knows the descriptor.
const FD_NAME: &str = "memory-dump";

/// Why the memory of a guest was not dumped.
#[derive(Debug, thiserror::Error)]
pub enum MemoryDumpError {
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("QEMU cannot dump the memory of the guest: {message}")]
    Failed { message: String },
    #[error("the monitor connection was closed during the memory dump")]
    Closed,
}

#[derive(Debug, Default, Deserialize)]
struct DumpStatus {
    #[serde(default)]
    status: String,
}

impl Qmp {
    /// Dumps the guest's memory to `to`, which may be a pipe. QEMU stops the guest for the dump
    /// and resumes it afterwards, also when the reader of the pipe goes away.
    pub async fn dump_memory(&self, to: OwnedFd) -> Result<(), MemoryDumpError> {
        let mut events = self.events();
        self.run_with_fds("getfd", json!({"fdname": FD_NAME}), vec![to]).await?;
        let dump = json!({"paging": false, "protocol": format!("fd:{FD_NAME}"), "detach": true});
        self.run("dump-guest-memory", dump).await?;
        loop {
            let received = tokio::select! {
                received = events.recv() => received,
                () = self.closed() => return Err(MemoryDumpError::Closed),
            };
            match received {
                Ok(event) => {
                    if let Some(result) = dump_result(&event) {
                        return result;
                    }
                }
                // The event may be among the missed ones.
                Err(RecvError::Lagged(_)) => {
                    let now: DumpStatus = self.execute("query-dump", json!({})).await?;
                    if now.status != "active" {
                        return judge(&now.status, "");
                    }
                }
                Err(RecvError::Closed) => return Err(MemoryDumpError::Closed),
            }
        }
    }
}

/// The result in a `DUMP_COMPLETED` event; nothing for other events.
fn dump_result(event: &Event) -> Option<Result<(), MemoryDumpError>> {
    if event.name != "DUMP_COMPLETED" {
        return None;
    }
    let status = event.data["result"]["status"].as_str().unwrap_or_default();
    let error = event.data["error"].as_str().unwrap_or_default();
    Some(judge(status, error))
}

fn judge(status: &str, error: &str) -> Result<(), MemoryDumpError> {
    match (status, error) {
        ("completed", "") => Ok(()),
        (status, "") => {
            Err(MemoryDumpError::Failed { message: format!("the status of the dump is {status}") })
        }
        (_, error) => Err(MemoryDumpError::Failed { message: error.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_result_of_a_dump_is_in_its_event() {
        let message = |name: &str, data: Value| {
            let result = dump_result(&Event { name: name.to_owned(), data, micros: 0 });
            result.map(|result| result.map_err(|failure| failure.to_string()))
        };
        let completed = json!({"result": {"status": "completed", "total": 1, "completed": 1}});
        assert_eq!(message("DUMP_COMPLETED", completed), Some(Ok(())));
        assert_eq!(message("STOP", json!({})), None);
        let failed = json!({"result": {"status": "failed"}, "error": "dump: failed to write"});
        assert_eq!(
            message("DUMP_COMPLETED", failed),
            Some(Err("QEMU cannot dump the memory of the guest: dump: failed to write".into()))
        );
    }
}
