//! Which time service of the host gets which file, for the servers of the setting. Pure.
//!
//! Only directories that a service reads besides its own configuration are used: files of the host's
//! administrator are never changed.

use std::path::{Path, PathBuf};

use super::host::CommandError;

/// Units of time services, in the order in which they are preferred.
pub(super) const UNITS: [&str; 3] =
    ["systemd-timesyncd.service", "chronyd.service", "chrony.service"];
/// Where chrony's configuration is, by distribution.
pub(super) const CHRONY_FILES: [&str; 2] = ["/etc/chrony/chrony.conf", "/etc/chrony.conf"];
pub(super) const HEADER: &str =
    "# Written by sheaf from the setting ntp-servers, and removed when the setting is emptied.\n";
const TIMESYNCD_FILE: &str = "/etc/systemd/timesyncd.conf.d/90-sheaf.conf";

/// A time service that runs on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeService {
    Timesyncd,
    Chrony { unit: &'static str },
}

/// Why the host cannot follow the setting.
#[derive(Debug, thiserror::Error)]
pub(super) enum NtpError {
    #[error("no time service is active: install and start systemd-timesyncd or chrony")]
    NoService,
    #[error(
        "chrony reads no directory of sources below /etc: add the line \
         \"sourcedir /etc/chrony/sources.d\" to its configuration and restart it"
    )]
    NoDirectory,
    #[error("the file {} exists and was not written by this node", .0.display())]
    Foreign(PathBuf),
    #[error("cannot write {}: {reason}", path.display())]
    Write { path: PathBuf, reason: String },
    #[error("cannot remove {}: {reason}", path.display())]
    Remove { path: PathBuf, reason: String },
    #[error("the time service does not accept the servers")]
    Reload(#[source] CommandError),
}

/// A file for a time service, and the command after which the service follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DropIn {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) reload: Vec<&'static str>,
}

/// The service that runs, by what `systemctl is-active` says about [`UNITS`], one line for each.
pub(super) fn active(states: &str) -> Option<TimeService> {
    let unit = UNITS.iter().zip(states.lines()).find(|(_, state)| state.trim() == "active")?.0;
    Some(match *unit {
        "systemd-timesyncd.service" => TimeService::Timesyncd,
        unit => TimeService::Chrony { unit },
    })
}

/// The file that makes a service use these servers. `chrony` is chrony's configuration.
pub(super) fn drop_in(
    service: TimeService,
    chrony: &str,
    servers: &[String],
) -> Result<DropIn, NtpError> {
    let TimeService::Chrony { unit } = service else {
        // The empty assignment drops the servers of the host's own configuration.
        let text = format!("{HEADER}[Time]\nNTP=\nNTP={}\n", servers.join(" "));
        return Ok(DropIn { path: TIMESYNCD_FILE.into(), text, reload: reload(service, None) });
    };
    let lines: String = servers.iter().map(|server| format!("server {server} iburst\n")).collect();
    let text = format!("{HEADER}{lines}");
    let find = |keyword: &str| directories(chrony, keyword).next();
    let path = match (find("sourcedir"), find("confdir")) {
        (Some(directory), _) => directory.join("sheaf.sources"),
        (None, Some(directory)) => directory.join("sheaf.conf"),
        (None, None) => return Err(NtpError::NoDirectory),
    };
    let reload = reload(TimeService::Chrony { unit }, Some(&path));
    Ok(DropIn { path, text, reload })
}

/// The command after which a service follows a change of this file of ours.
pub(super) fn reload(service: TimeService, path: Option<&Path>) -> Vec<&'static str> {
    let is_sources = path.and_then(Path::extension).is_some_and(|own| own == "sources");
    match service {
        TimeService::Timesyncd => vec!["systemctl", "try-restart", UNITS[0]],
        TimeService::Chrony { .. } if is_sources => vec!["chronyc", "reload", "sources"],
        TimeService::Chrony { unit } => vec!["systemctl", "try-restart", unit],
    }
}

/// Directories below `/etc` that a directive of chrony's configuration names.
fn directories(text: &str, keyword: &str) -> impl Iterator<Item = PathBuf> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let named = words.filter_map(move |words| match words[..] {
        [own, directory, ..] if own.eq_ignore_ascii_case(keyword) => Some(PathBuf::from(directory)),
        _ => None,
    });
    named.filter(|directory| {
        let is_plain = directory.components().all(|own| own.as_os_str() != "..");
        directory.starts_with("/etc") && is_plain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_active_unit_is_the_time_service() {
        let chrony = |unit| Some(TimeService::Chrony { unit });
        for (states, expected) in [
            ("active\ninactive\ninactive\n", Some(TimeService::Timesyncd)),
            ("inactive\nactive\nactive\n", chrony("chronyd.service")),
            ("failed\ninactive\nactive\n", chrony("chrony.service")),
            ("inactive\ninactive\ninactive\n", None),
            ("activating\n", None),
            ("", None),
        ] {
            assert_eq!(active(states), expected, "{states:?}");
        }
    }

    #[test]
    fn each_service_gets_a_file_of_its_own() {
        let servers = ["a.example".to_owned(), "10.0.0.1".to_owned()];
        let file = |service, chrony: &str| {
            let own = drop_in(service, chrony, &servers).map_err(|failure| failure.to_string())?;
            let text = own.text.strip_prefix(HEADER).unwrap().to_owned();
            Ok((own.path.display().to_string(), text, own.reload.join(" ")))
        };
        let row = |path: &str, text: &str, reload: &str| {
            Ok((path.to_owned(), text.to_owned(), reload.to_owned()))
        };
        let chrony = TimeService::Chrony { unit: "chronyd.service" };
        let lines = "server a.example iburst\nserver 10.0.0.1 iburst\n";
        assert_eq!(
            file(TimeService::Timesyncd, ""),
            row(
                TIMESYNCD_FILE,
                "[Time]\nNTP=\nNTP=a.example 10.0.0.1\n",
                "systemctl try-restart systemd-timesyncd.service"
            )
        );
        assert_eq!(
            file(chrony, "pool x\nconfdir /etc/chrony/conf.d\nSourceDir /etc/chrony/sources.d\n"),
            row("/etc/chrony/sources.d/sheaf.sources", lines, "chronyc reload sources")
        );
        assert_eq!(
            file(chrony, "sourcedir /run/chrony-dhcp\nconfdir /etc/chrony.d\n"),
            row("/etc/chrony.d/sheaf.conf", lines, "systemctl try-restart chronyd.service")
        );
        for none in ["", "#sourcedir /etc/chrony", "sourcedir /etc/../run", "sourcedir"] {
            assert_eq!(file(chrony, none), Err(NtpError::NoDirectory.to_string()), "{none}");
        }
    }
}
