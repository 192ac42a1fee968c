//! `sheaf user`: local users, thin over the API.

use std::io::{BufRead, IsTerminal as _, Write as _};

use anyhow::{Context as _, Result, bail};
use rustix::termios::{self, LocalModes, OptionalActions};
use serde_json::Value;
use steve::{NewUser, UserRole, Users};

use super::link::ClusterClient;
use super::{table, user_token};
use crate::cli::{ClusterScope, UserCommand, UserRoleArg};

/// As the server: longer passwords are refused, and standard input may be endless.
const MAX_PASSWORD: u64 = 1024;

pub(super) fn run(command: UserCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(dispatch(command))
}

async fn dispatch(command: UserCommand) -> Result<()> {
    match command {
        UserCommand::Token(command) => user_token::run(command),
        UserCommand::List { place } => list(&users(&place).await?).await,
        UserCommand::Create { place, name, role, password } => {
            let users = users(&place).await?;
            let password = choose(password.as_deref())?;
            let role = match role {
                UserRoleArg::Administrator => UserRole::Administrator,
                UserRoleArg::ReadOnly => UserRole::ReadOnly,
                UserRoleArg::None => UserRole::None,
            };
            let new =
                NewUser { name: &name, password: &password, role, must_change_password: false };
            users.create(new).await?;
            super::print(&format!("user {name} created\n"))
        }
        UserCommand::Passwd { place, name, password } => {
            let users = users(&place).await?;
            users.set_password(&name, &choose(password.as_deref())?).await?;
            super::print(&format!("password of {name} changed\n"))
        }
        UserCommand::Delete { place, name } => {
            users(&place).await?.delete(&name).await?;
            super::print(&format!("user {name} deleted\n"))
        }
    }
}

async fn users(place: &ClusterScope) -> Result<Users> {
    Ok(Users::new(ClusterClient::to(place).await?.client))
}

async fn list(users: &Users) -> Result<()> {
    let mut rows =
        vec![["NAME", "USERNAME", "ENABLED", "PASSWORD", "CREATED"].map(str::to_owned).to_vec()];
    for user in users.list().await? {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        rows.push(vec![
            text(&user["metadata"]["name"]),
            text(&user["username"]),
            (user["enabled"] != false).to_string(),
            if must_change(&user) { "must be changed" } else { "" }.to_owned(),
            text(&user["metadata"]["creationTimestamp"]),
        ]);
    }
    super::print(&table::align(&rows))
}

/// Whether a user has a password that somebody else has chosen.
pub(super) fn must_change(user: &Value) -> bool {
    user["mustChangePassword"] == true
}

/// A new password: the one that was given, or typed twice.
fn choose(given: Option<&str>) -> Result<String> {
    password(given, |read| {
        let first = typed("Password: ", read)?;
        if typed("Again: ", read)? != first {
            bail!("the two passwords differ");
        }
        Ok(first)
    })
}

/// An existing password: the one that was given, or typed once.
pub(super) fn ask(given: Option<&str>) -> Result<String> {
    password(given, |read| typed("Password: ", read))
}

type ReadLine = fn() -> Result<String>;

fn password(given: Option<&str>, prompt: fn(ReadLine) -> Result<String>) -> Result<String> {
    match given {
        Some("-") => read_line(),
        Some(password) => Ok(password.to_owned()),
        None if std::io::stdin().is_terminal() => prompt(read_line),
        None => bail!(
            "standard input is no terminal: give the password with --password, or - to read it from there"
        ),
    }
}

fn read_line() -> Result<String> {
    password_line(std::io::stdin().lock())
}

/// The first line, which must not be endless.
fn password_line(input: impl BufRead) -> Result<String> {
    let mut line = String::new();
    let read = input.take(MAX_PASSWORD + 1).read_line(&mut line);
    if read.context("cannot read the password")? as u64 > MAX_PASSWORD {
        bail!("the password has more than {MAX_PASSWORD} bytes");
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A line that the terminal does not show.
fn typed(prompt: &str, read: impl Fn() -> Result<String>) -> Result<String> {
    let stdin = std::io::stdin();
    let mut out = std::io::stderr();
    write!(out, "{prompt}").and_then(|()| out.flush()).context("cannot write to the terminal")?;
    let before = termios::tcgetattr(&stdin).context("cannot read the terminal's settings")?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    termios::tcsetattr(&stdin, OptionalActions::Flush, &silent)
        .context("cannot turn the terminal's echo off")?;
    let line = read();
    let restored = termios::tcsetattr(&stdin, OptionalActions::Flush, &before);
    writeln!(out).context("cannot write to the terminal")?;
    restored.context("cannot turn the terminal's echo on again")?;
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_and_not_endless() {
        let line = |text: &str| password_line(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(line("secret\r\nmore"), Ok("secret".to_owned()));
        assert_eq!(line(""), Ok(String::new()));
        assert_eq!(line(&"a".repeat(1024)).map(|text| text.len()), Ok(1024));
        assert!(line(&"a".repeat(9999)).unwrap_err().contains("more than 1024 bytes"));
        assert!(password_line(std::io::BufReader::new(std::io::repeat(0))).is_err());
    }
}
