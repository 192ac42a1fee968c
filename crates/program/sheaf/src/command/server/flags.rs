//! Checks of the flags of `sheaf server` that concern several flags or a file, before anything is
//! made. Flags that are wrong by themselves are refused when the command line is read.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Result;
use steve::PasswordError;

use super::{names, tokens};
use crate::cli::{DashboardListen, ServerArgs, StoreKind};
use crate::command::oidc;

/// The reason why a server cannot start with its flags.
#[derive(Debug, thiserror::Error)]
enum ServerFlagError {
    #[error("--host-disk-path {}: expected a directory that exists", path.display())]
    HostDisk { path: PathBuf, source: std::io::Error },
    #[error("--host-disk-path {}: expected a directory, and it is none", .0.display())]
    NoDirectory(PathBuf),
    #[error("{first} and {second} both have port {port}; choose another for one of them")]
    Ports { first: &'static str, second: &'static str, port: u16 },
    #[error("{0} has an effect with --store etcd only")]
    NoEtcd(&'static str),
    /// Without the password: the message is logged.
    #[error("--admin-password is not accepted")]
    Password(#[source] PasswordError),
}

/// Fails if flags contradict each other, or a file or directory that they name is not there.
pub(super) fn check(args: &ServerArgs) -> Result<()> {
    names::check_networks(args)?;
    match collision(args).or_else(|| without_etcd(args)) {
        None => {}
        Some(error) => return Err(error.into()),
    }
    for path in &args.host_disk_paths {
        check_directory(path)?;
    }
    if let Some(password) = &args.admin_password {
        steve::check_password(steve::FIRST_USER, password).map_err(ServerFlagError::Password)?;
    }
    if let Some(file) = &args.token_auth_file {
        tokens::check(file)?;
    }
    args.connections.limits()?;
    oidc::login(&args.oidc)?;
    Ok(())
}

fn check_directory(path: &Path) -> Result<(), ServerFlagError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(ServerFlagError::NoDirectory(path.to_owned())),
        Err(source) => Err(ServerFlagError::HostDisk { path: path.to_owned(), source }),
    }
}

/// Two listeners of this process with the same port.
fn collision(args: &ServerArgs) -> Option<ServerFlagError> {
    let mut listeners = vec![("--listen", args.listen)];
    if let Some(DashboardListen::Address(address)) = args.dashboard_listen {
        listeners.push(("--dashboard-listen", address));
    }
    let own = args.advertise_address.unwrap_or(args.listen.ip());
    // Others cannot reach a loopback address, so that nothing is opened for them; a node that
    // joins has another one.
    if !own.is_loopback() || args.join.is_some() {
        let own = if own.is_loopback() { IpAddr::from([0, 0, 0, 0]) } else { own };
        listeners.push(("--agent-port", SocketAddr::new(own, args.agent_port)));
        listeners.push(("--storage-port", SocketAddr::new(own, args.storage_port)));
    }
    let meet =
        |one: IpAddr, other: IpAddr| one == other || one.is_unspecified() || other.is_unspecified();
    let rest = |index: usize| listeners.iter().skip(index + 1);
    listeners.iter().enumerate().find_map(|(index, (first, one))| {
        // The system chooses another for each if the port is 0.
        let same = |other: &SocketAddr| one.port() == other.port() && one.port() != 0;
        let found = rest(index).find(|(_, other)| same(other) && meet(one.ip(), other.ip()));
        found.map(|(second, _)| ServerFlagError::Ports { first, second, port: one.port() })
    })
}

/// A flag for etcd where objects are stored elsewhere.
fn without_etcd(args: &ServerArgs) -> Option<ServerFlagError> {
    let etcd = &args.etcd;
    let given = [
        ("--etcd-endpoints", !etcd.etcd_endpoints.is_empty()),
        ("--etcd-cafile", etcd.etcd_cafile.is_some()),
        ("--etcd-certfile", etcd.etcd_certfile.is_some()),
    ];
    let (flag, _) = given.into_iter().find(|(_, is_given)| *is_given)?;
    (args.store != StoreKind::Etcd).then_some(ServerFlagError::NoEtcd(flag))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn checked(line: &str) -> Result<(), String> {
        let cli =
            Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        let Command::Server(args) = cli.command else { panic!("{line}") };
        check(&args).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        for (flags, expected) in [
            ("--listen 127.0.0.1:7000 --dashboard-listen 127.0.0.1:7000", "--listen and --dash"),
            ("--listen 0.0.0.0:7000 --dashboard-listen 127.0.0.1:7000", "port 7000"),
            ("--advertise-address 10.0.0.1 --agent-port 10270", "--agent-port and --storage-port"),
            ("--listen 10.0.0.1:10250", "--listen and --agent-port"),
            ("--join https://a:1 --storage-port 10250", "--agent-port and --storage-port"),
            ("--etcd-endpoints http://a:1", "--etcd-endpoints has an effect with --store etcd"),
            ("--etcd-cafile ca.pem", "--etcd-cafile"),
            ("--reserved-connections 9 --max-connections 9", "--reserved-connections is 9"),
            ("--max-connections 0", "--max-connections"),
            ("--max-connections-per-source 0", "--max-connections-per-source"),
            ("--oidc-issuer-url http://a --oidc-client-id b", "--oidc-issuer-url"),
            ("--oidc-username-claim sub", "--oidc-issuer-url"),
            ("--guest-network 10.53.7.0/24", "--guest-network and --service-cluster-ip-range"),
            ("--admin-password short", "--admin-password is not accepted: Password must be at"),
            ("--event-ttl 0", "1..=31536000"),
            ("--store-backup-hours 4294967295", "0..=8760"),
            ("--agent-port 0", "--agent-port"),
            ("--max-image-size 1", "--max-image-size"),
            ("--node-name No_Such", "lower-case letters"),
            ("--tls-san a,,b", "--tls-san"),
        ] {
            let refused = checked(&format!("sheaf server {flags}")).unwrap_err();
            assert!(refused.contains(expected), "{flags}: {refused}");
        }
        for flags in [
            "",
            "--listen 127.0.0.1:0 --dashboard-listen 127.0.0.1:0",
            "--listen 127.0.0.1:10250",
            "--listen 127.0.0.1:7000 --dashboard-listen 127.0.0.2:7000",
            "--store etcd --etcd-endpoints http://a:1",
            "--admin-password a-long-enough-password",
        ] {
            assert_eq!(checked(&format!("sheaf server {flags}")), Ok(()), "{flags}");
        }
    }

    #[test]
    fn files_and_directories_that_flags_name_have_to_exist() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().display();
        std::fs::write(format!("{dir}/tokens"), "secret,jane,1\n").unwrap();
        std::fs::write(format!("{dir}/garbage"), "no tokens").unwrap();
        for (flags, expected) in [
            (format!("--host-disk-path {dir}/none"), "expected a directory that exists"),
            (format!("--host-disk-path {dir}/tokens"), "expected a directory, and it is none"),
            (format!("--token-auth-file {dir}/none"), "--token-auth-file"),
            (format!("--token-auth-file {dir}"), "expected a file"),
            (format!("--token-auth-file {dir}/garbage"), "token,user,uid"),
        ] {
            let refused = checked(&format!("sheaf server {flags}")).unwrap_err();
            assert!(refused.contains(expected), "{flags}: {refused}");
        }
        let flags = format!("--host-disk-path {dir} --token-auth-file {dir}/tokens");
        assert_eq!(checked(&format!("sheaf server {flags}")), Ok(()));
    }

    #[test]
    fn the_first_password_is_not_part_of_the_message() {
        let refused = checked("sheaf server --admin-password secret").unwrap_err();
        assert!(!refused.contains("secret"), "{refused}");
    }
}
