//! Forwarding to a machine: `port-forward`, `ssh`, `vnc`.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

use super::console::{self, Socket};
use crate::cli::MachineArg;
use crate::command::link::ClusterClient;

/// Viewers that are tried, with the prefix of the address in the arguments of each.
const VIEWERS: [(&str, &str); 4] = [
    ("remote-viewer", "vnc://"),
    ("vncviewer", ""),
    ("xtigervncviewer", ""),
    ("vinagre", "vnc://"),
];

pub(super) async fn port(
    machine: &MachineArg,
    port: u16,
    listen: Option<SocketAddr>,
) -> Result<()> {
    let link = ClusterClient::to(&machine.place).await?;
    let path = link.instance(&machine.name, &format!("portforward/{port}/tcp"));
    match listen {
        None => {
            let socket = stream(&link, &path).await?;
            pipe(socket, tokio::io::stdin(), tokio::io::stdout()).await;
            Ok(())
        }
        Some(address) => {
            let listener = bind(address).await?;
            let here = listener.local_addr().context("cannot read the address of the listener")?;
            eprintln!("Forwarding {here} to port {port} of {}. Stop with Ctrl-C.", machine.name);
            serve(&link, &path, listener).await
        }
    }
}

pub(super) async fn vnc(machine: &MachineArg, listen: SocketAddr, proxy_only: bool) -> Result<()> {
    let link = ClusterClient::to(&machine.place).await?;
    let path = link.instance(&machine.name, "vnc");
    // Tried once before a viewer is started, so that errors are shown here.
    drop(stream(&link, &path).await?);
    let listener = bind(listen).await?;
    let here = listener.local_addr().context("cannot read the address of the listener")?;
    eprintln!("Forwarding {here} to the display of {}. Stop with Ctrl-C.", machine.name);
    if !proxy_only && !start_viewer(here) {
        eprintln!(
            "No VNC viewer is installed; connect one to {here}, for example: vncviewer {here}"
        );
    }
    serve(&link, &path, listener).await
}

/// Replaces this process with ssh, which runs `sheaf vm port-forward` as its proxy.
pub(super) async fn ssh(
    machine: &MachineArg,
    login: &str,
    identity: Option<&Path>,
    command: &[String],
) -> Result<()> {
    let link = ClusterClient::to(&machine.place).await?;
    let instance = link.objects(&format!("virtualmachineinstances/{}", machine.name));
    let is_running = link.find(&instance).await?.is_some();
    let found = link.find(&link.machine(&machine.name)).await?;
    if !is_running && found.is_none() {
        bail!("there is no machine {} in namespace {}", machine.name, link.namespace);
    }
    if !is_running {
        bail!("{} is not running; start it with: sheaf vm start {0}", machine.name);
    }
    let uid = found.as_ref().and_then(|found| found["metadata"]["uid"].as_str()).unwrap_or("");
    let own = std::env::current_exe().context("cannot find the file of this program")?;
    let mut proxy = vec![own.display().to_string(), "vm".into(), "port-forward".into()];
    proxy.extend(["--namespace".into(), machine.place.namespace.clone()]);
    if let Some(file) = machine.place.kubeconfig() {
        proxy.extend(["--kubeconfig".into(), file.display().to_string()]);
    }
    if let Some(dir) = &machine.place.data.data_dir {
        proxy.extend(["--data-dir".into(), dir.display().to_string()]);
    }
    proxy.extend([machine.name.clone(), "22".into()]);
    let proxy: Vec<String> = proxy.iter().map(|word| quoted(word)).collect();
    let mut ssh = Command::new("ssh");
    ssh.arg("-o").arg(format!("ProxyCommand={}", proxy.join(" ")));
    let host = format!("vm.{}.{}", machine.name, machine.place.namespace);
    for option in options(&host, uid, known_hosts().as_deref(), std::io::stdin().is_terminal()) {
        ssh.arg("-o").arg(option);
    }
    if let Some(file) = identity {
        ssh.arg("-i").arg(file);
    }
    ssh.arg(format!("{login}@{host}")).args(command);
    Err(anyhow!(ssh.exec()).context("cannot run ssh; is it installed?"))
}

/// Options of ssh. A key belongs to one machine: the uid distinguishes a new machine with an old
/// name, whose key is accepted, from a machine whose key has changed, which is refused.
fn options(host: &str, uid: &str, known_hosts: Option<&Path>, interactive: bool) -> Vec<String> {
    let alias = [host, uid].join(".");
    let mut options = vec![
        format!("HostKeyAlias={}", alias.trim_end_matches('.')),
        "StrictHostKeyChecking=accept-new".to_owned(),
    ];
    if let Some(path) = known_hosts {
        options.push(format!("UserKnownHostsFile=\"{}\"", path.display()));
    }
    if !interactive {
        options.push("BatchMode=yes".to_owned());
    }
    options
}

/// Host keys of machines are kept apart from those of other hosts.
fn known_hosts() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ssh/sheaf_known_hosts"))
}

/// A word that the shell of ProxyCommand leaves alone.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn start_viewer(here: SocketAddr) -> bool {
    VIEWERS.iter().any(|(program, prefix)| {
        let target = match *program {
            "vncviewer" | "xtigervncviewer" => format!("{}::{}", here.ip(), here.port()),
            _ => format!("{prefix}{here}"),
        };
        Command::new(program)
            .arg(target)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .is_ok()
    })
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

async fn stream(link: &ClusterClient, path: &str) -> Result<Socket> {
    match console::open(link, path).await? {
        Ok(socket) => Ok(socket),
        Err(refused) => bail!("{}", refused.message),
    }
}

/// One stream per connection, until Ctrl-C.
async fn serve(link: &ClusterClient, path: &str, listener: TcpListener) -> Result<()> {
    loop {
        let (connection, _) = listener.accept().await.context("cannot accept a connection")?;
        match stream(link, path).await {
            Ok(socket) => {
                let (reader, writer) = connection.into_split();
                tokio::spawn(pipe(socket, reader, writer));
            }
            Err(error) => eprintln!("sheaf: {error:#}"),
        }
    }
}

async fn pipe(
    socket: Socket,
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) {
    let (mut outgoing, mut incoming) = socket.split();
    let there = async {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            if outgoing.send(Message::Binary(buffer[..count].to_vec().into())).await.is_err() {
                return;
            }
        }
    };
    let back = async {
        while let Some(Ok(message)) = incoming.next().await {
            match message {
                Message::Close(_) => return,
                // Pings and their like carry nothing for the other side.
                message if !message.is_binary() => {}
                message => {
                    let bytes = message.into_data();
                    if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    // The guest's side decides: its remaining output after the end of our input is still
    // delivered.
    tokio::pin!(there, back);
    tokio::select! {
        () = &mut back => {}
        () = &mut there => {
            let _ = tokio::time::timeout(std::time::Duration::from_secs(30), back).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_asks_nothing_in_scripts_and_keeps_keys_per_machine() {
        let file = Path::new("/srv/a b/.ssh/sheaf_known_hosts");
        assert_eq!(
            options("vm.web.default", "u-1", Some(file), false),
            [
                "HostKeyAlias=vm.web.default.u-1",
                "StrictHostKeyChecking=accept-new",
                "UserKnownHostsFile=\"/srv/a b/.ssh/sheaf_known_hosts\"",
                "BatchMode=yes",
            ]
        );
        assert_eq!(
            options("vm.web.default", "", None, true),
            ["HostKeyAlias=vm.web.default", "StrictHostKeyChecking=accept-new"]
        );
    }

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quoted("/usr/bin/sheaf"), "/usr/bin/sheaf");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
