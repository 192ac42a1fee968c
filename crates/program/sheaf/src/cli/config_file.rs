//! The configuration file of `sheaf server` and `sheaf witness`: YAML whose keys are their flags, and
//! the keys of Harvester's installer that mean something to a running system.
//!
//! The file becomes flags in front of those on the command line, which win. Keys are matched
//! without regard to case and to `_` or `-`. Nothing is read from the file by any other path.

mod installer;
mod secret;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use serde_json::{Map, Value};

use super::Cli;
use crate::text_file;

/// Read if it exists and no other file is named.
const DEFAULT: &str = "/etc/sheaf/config.yaml";
/// The command that has some of the flags only.
const WITNESS: &str = "witness";
const ENVIRONMENT: &str = "SHEAF_CONFIG";
/// Flags that a file cannot give.
const NOT_IN_FILES: [&str; 3] = ["config", "help", "version"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The first line of the parser's report; the others draw the place.
    #[error("{} is not valid YAML: {reason}", path.display())]
    Yaml { path: PathBuf, reason: String },
    #[error("{}", path.display())]
    Key { path: PathBuf, source: KeyError },
}

/// The error in a key of the file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("the file is not a map of keys to values")]
    NotAMap,
    #[error(
        "unknown key {key:?}; {}",
        match suggestion {
            Some(known) => format!("did you mean {known:?}?"),
            None => "keys are the flags of `sheaf server` and those of Harvester's installer".into(),
        }
    )]
    Unknown { key: String, suggestion: Option<String> },
    #[error("{key}: expected {expected}, found {found}")]
    Value { key: String, expected: &'static str, found: String },
    #[error("{key}: {reason}")]
    Unsupported { key: String, reason: &'static str },
}

/// The flags of a file, and the keys without effect here, each with a reason.
#[derive(Debug, Default, PartialEq, Eq)]
struct Translation {
    flags: Vec<String>,
    ignored: Vec<(String, &'static str)>,
}

impl Translation {
    fn flag(&mut self, flag: &str, value: &str) {
        self.flags.push(format!("--{flag}={value}"));
    }

    /// Drops flags that a command does not have, with a message.
    fn keep(&mut self, known: &[ServerFlag]) {
        let name = |flag: &str| flag.trim_start_matches('-').split('=').next().map(str::to_owned);
        let (kept, others) = std::mem::take(&mut self.flags).into_iter().partition(|flag| {
            let name = name(flag).unwrap_or_default();
            known.iter().any(|own| own.name == name)
        });
        self.flags = kept;
        let others: Vec<String> = others;
        // The role is what the command says.
        let others = others.iter().filter(|flag| *flag != "--role=witness");
        self.ignored.extend(
            others.filter_map(|flag| Some((name(flag)?, "`sheaf witness` has no such flag"))),
        );
    }
}

/// Puts the flags of the configuration file in front of those that were given to `sheaf server`.
pub(crate) fn extend(words: Vec<OsString>) -> Result<Vec<OsString>, ConfigError> {
    let command = words.get(1).and_then(|command| command.to_str()).unwrap_or_default();
    if !["server", WITNESS].contains(&command) {
        return Ok(words);
    }
    let is_witness = command == WITNESS;
    let named = named(&words[2..]).or_else(|| std::env::var_os(ENVIRONMENT).map(PathBuf::from));
    // An empty name is refused with the other flags.
    let named = named.filter(|path| !path.as_os_str().is_empty());
    let path = match named {
        Some(path) => path,
        None if Path::new(DEFAULT).exists() => PathBuf::from(DEFAULT),
        None => return Ok(words),
    };
    let text = match text_file::read(&path) {
        Ok(text) => text,
        Err(source) => return Err(ConfigError::Read { path, source }),
    };
    let file: Value = match serde_saphyr::from_str(&text) {
        Ok(file) => file,
        Err(error) => {
            let reason = error.to_string().lines().next().unwrap_or_default().to_owned();
            return Err(ConfigError::Yaml { path, reason });
        }
    };
    let mut translation = match translate(&file) {
        Ok(translation) => translation,
        Err(source) => return Err(ConfigError::Key { path, source }),
    };
    if let Some(notice) = secret::protect(&path, &translation.flags) {
        eprintln!("sheaf: {}: {notice}", path.display());
    }
    if is_witness {
        translation.keep(&flags_of(WITNESS));
    }
    for (key, reason) in &translation.ignored {
        eprintln!("sheaf: {}: {key} is ignored: {reason}", path.display());
    }
    let (command, given) = words.split_at(2);
    let flags = translation.flags.into_iter().map(OsString::from);
    Ok(command.iter().cloned().chain(flags).chain(given.iter().cloned()).collect())
}

/// The file that the command line names.
fn named(given: &[OsString]) -> Option<PathBuf> {
    let mut given = given.iter();
    while let Some(word) = given.next() {
        if word == OsStr::new("--config") {
            return given.next().map(PathBuf::from);
        }
        if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--config=")) {
            return Some(PathBuf::from(path));
        }
    }
    None
}

fn translate(file: &Value) -> Result<Translation, KeyError> {
    let mut into = Translation::default();
    // An empty file has nothing to say.
    if file.is_null() {
        return Ok(into);
    }
    let known = flags_of("server");
    for (key, value) in file.as_object().ok_or(KeyError::NotAMap)? {
        if installer::translate(key, value, &mut into)? {
            continue;
        }
        let name = normal(key);
        match known.iter().find(|flag| flag.name == name) {
            Some(flag) => own_flag(flag, key, value, &mut into)?,
            None => return Err(unknown(key, known.iter().map(|flag| flag.name.as_str()))),
        }
    }
    Ok(into)
}

/// A flag of a command.
struct ServerFlag {
    name: String,
    takes_value: bool,
}

fn flags_of(name: &str) -> Vec<ServerFlag> {
    let cli = Cli::command();
    let command = cli.find_subcommand(name).into_iter();
    let arguments = command.flat_map(|command| command.get_arguments());
    let flags = arguments.filter_map(|argument| {
        let name = argument.get_long()?.to_owned();
        Some(ServerFlag { name, takes_value: argument.get_action().takes_values() })
    });
    flags.filter(|flag| !NOT_IN_FILES.contains(&flag.name.as_str())).collect()
}

fn own_flag(
    flag: &ServerFlag,
    key: &str,
    value: &Value,
    into: &mut Translation,
) -> Result<(), KeyError> {
    if !flag.takes_value {
        match value {
            Value::Bool(true) => into.flags.push(format!("--{}", flag.name)),
            Value::Bool(false) => {}
            other => return Err(wrong(key, "true or false", other)),
        }
        return Ok(());
    }
    let values = match value {
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    for value in values {
        into.flag(&flag.name, &scalar(key, value)?);
    }
    Ok(())
}

/// A key as a flag is written.
fn normal(key: &str) -> String {
    key.to_lowercase().replace('_', "-")
}

fn wrong(key: &str, expected: &'static str, found: &Value) -> KeyError {
    KeyError::Value { key: key.to_owned(), expected, found: found.to_string() }
}

fn scalar(key: &str, value: &Value) -> Result<String, KeyError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(wrong(key, "a text or a number", other)),
    }
}

fn object<'a>(key: &str, value: &'a Value) -> Result<&'a Map<String, Value>, KeyError> {
    value.as_object().ok_or_else(|| wrong(key, "a map", value))
}

fn unknown<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> KeyError {
    let name = normal(key);
    let close = known.filter(|flag| distance(flag, &name) <= 2);
    let suggestion = close.min_by_key(|flag| distance(flag, &name)).map(str::to_owned);
    KeyError::Unknown { key: key.to_owned(), suggestion }
}

/// The number of insertions, removals and replacements that make one text of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests;
