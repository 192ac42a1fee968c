//! `sheaf user token`: static tokens in the data directory's token file.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Signal, kill_process};

use crate::cli::UserTokenCommand;
use crate::data_dir::Layout;

pub(super) fn run(command: UserTokenCommand) -> Result<()> {
    match command {
        UserTokenCommand::Create { data, user, group } => {
            let layout = Layout::new(data.data_dir.as_deref())?;
            layout.require()?;
            let token = random_token();
            let mut lines = read(&layout.tokens())?;
            lines.push(line(&token, &user, &group)?);
            write(&layout, &lines)?;
            super::print(&format!("{token}\n"))
        }
        UserTokenCommand::List { data } => {
            let layout = Layout::new(data.data_dir.as_deref())?;
            let mut table = format!("{:<32} GROUPS\n", "USER");
            for line in read(&layout.tokens())? {
                let mut fields = line.splitn(4, ',').skip(1);
                let user = fields.next().unwrap_or("");
                let groups = fields.nth(1).unwrap_or("").trim_matches('"');
                let _ = writeln!(table, "{user:<32} {groups}");
            }
            super::print(&table)
        }
        UserTokenCommand::Revoke { data, user } => {
            let layout = Layout::new(data.data_dir.as_deref())?;
            let lines = read(&layout.tokens())?;
            let left: Vec<String> = lines
                .iter()
                .filter(|line| line.split(',').nth(1) != Some(&user))
                .cloned()
                .collect();
            let revoked = lines.len() - left.len();
            if revoked == 0 {
                bail!("{user} has no tokens; `sheaf user token list` shows who does");
            }
            write(&layout, &left)?;
            super::print(&format!("revoked {revoked} token(s) of {user}\n"))
        }
    }
}

fn line(token: &str, user: &str, groups: &[String]) -> Result<String> {
    for text in groups.iter().map(String::as_str).chain([user]) {
        if text.is_empty() || text.contains([',', '"', '\n']) {
            bail!(
                "{text:?} cannot be a user or group: no commas, quotes or line breaks, not empty"
            );
        }
    }
    let uid = uuid_like(token);
    Ok(format!("{token},{user},{uid},\"{}\"", groups.join(",")))
}

/// Derived from the token's first half, so that it distinguishes tokens without being one.
fn uuid_like(token: &str) -> String {
    token.chars().take(8).collect()
}

fn random_token() -> String {
    use std::io::Read as _;
    let mut bytes = [0_u8; 32];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    debug_assert!(read.is_ok(), "every Linux has /dev/urandom");
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn read(path: &Path) -> Result<Vec<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Replaces the file at once and notifies a running server.
fn write(layout: &Layout, lines: &[String]) -> Result<()> {
    let path = layout.tokens();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    auth::kubeconfig::write_kubeconfig(&path, &text)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if let Some(server) = layout.holder() {
        kill_process(server, Signal::HUP).context("cannot notify the running server")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_break_the_file_are_refused() {
        assert!(line("t", "jane", &["dev".to_owned()]).is_ok());
        for bad in ["a,b", "a\"b", "a\nb", ""] {
            assert!(line("t", bad, &[]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn tokens_are_long_and_differ() {
        assert_eq!(random_token().len(), 64);
        assert_ne!(random_token(), random_token());
    }
}
