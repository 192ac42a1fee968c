//! The audit log: a file of JSON lines with rotation by size and retention by number and age.
//!
//! Every line of the file is complete. A write that fails halfway is truncated, and a line that
//! a killed process left unfinished is closed before the next one is appended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

/// Where the log lies and how much of it is kept. Zero means without limit.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// `-` is standard output.
    pub path: PathBuf,
    /// In days.
    pub max_age: u32,
    pub max_backups: u32,
    /// In bytes.
    pub max_size: u64,
}

pub(super) struct Log {
    config: LogConfig,
    file: File,
    size: u64,
}

impl Log {
    pub(super) fn open(config: LogConfig) -> io::Result<Self> {
        let mut file = open(&config.path)?;
        if !is_stream(&config.path) {
            end_last_line(&mut file)?;
        }
        let size = file.metadata()?.len();
        Ok(Self { config, file, size })
    }

    /// Appends whole lines. The file is rotated before the line that would exceed the limit, so
    /// a large batch spans several files.
    pub(super) fn write(&mut self, lines: &[Bytes], now: Timestamp) -> io::Result<()> {
        let limit = self.config.max_size;
        let mut text = Vec::new();
        for line in lines {
            let size = self.size + text.len() as u64;
            if limit > 0 && size > 0 && size + line.len() as u64 + 1 > limit {
                self.append(&text)?;
                text.clear();
                self.rotate(now)?;
            }
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        self.append(&text)
    }

    /// Appends all of `text` or nothing.
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if let Err(failure) = self.file.write_all(text) {
            if self.file.metadata().is_ok_and(|data| data.is_file()) {
                self.file.set_len(self.size)?;
            }
            return Err(failure);
        }
        self.size += text.len() as u64;
        Ok(())
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let path = &self.config.path;
        if is_stream(path) {
            return Ok(());
        }
        fs::rename(path, unused_backup_name(path, now))?;
        self.file = open(path)?;
        self.size = 0;
        for old in forgotten(&backups(path)?, &self.config, now) {
            fs::remove_file(old)?;
        }
        Ok(())
    }
}

/// Appends a line break to a file that does not end with one.
fn end_last_line(file: &mut File) -> io::Result<()> {
    let data = file.metadata()?;
    if !data.is_file() || data.len() == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.read_exact_at(&mut last, data.len() - 1)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

fn open(path: &Path) -> io::Result<File> {
    if is_stream(path) {
        return OpenOptions::new().append(true).open("/dev/stdout");
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    OpenOptions::new().read(true).create(true).append(true).mode(0o600).open(path)
}

/// The backup name for this time, or for the next millisecond whose name is free.
fn unused_backup_name(path: &Path, now: Timestamp) -> PathBuf {
    let mut time = now;
    loop {
        let name = backup_name(path, time);
        match time.checked_add(Duration::from_millis(1)) {
            Ok(next) if name.exists() => time = next,
            _ => return name,
        }
    }
}

/// A backup of `audit.log` is named `audit-2026-01-02T03-04-05.678.log`.
fn backup_name(path: &Path, now: Timestamp) -> PathBuf {
    let (stem, extension) = parts(path);
    let time = now.strftime("%Y-%m-%dT%H-%M-%S.%3f");
    path.with_file_name(format!("{stem}-{time}{extension}"))
}

fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let extension = text(path.extension());
    let extension = if extension.is_empty() { extension } else { format!(".{extension}") };
    (text(path.file_stem()), extension)
}

/// The backups of a log with their times, newest first.
fn backups(path: &Path) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let (stem, extension) = parts(path);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let time = name
            .strip_prefix(&stem)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|rest| rest.strip_suffix(extension.as_str()))
            .and_then(time_of);
        found.extend(time.map(|time| (time, entry.path())));
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found)
}

fn time_of(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once('T')?;
    format!("{date}T{}Z", time.replace('-', ":")).parse().ok()
}

/// Those of `backups` (newest first) that are too many or too old.
fn forgotten(backups: &[(Timestamp, PathBuf)], config: &LogConfig, now: Timestamp) -> Vec<PathBuf> {
    let oldest = now.as_second() - i64::from(config.max_age) * 86_400;
    let keep = usize::try_from(config.max_backups).unwrap_or(usize::MAX);
    let gone = |(index, (time, _)): &(usize, &(Timestamp, PathBuf))| {
        (keep > 0 && *index >= keep) || (config.max_age > 0 && time.as_second() < oldest)
    };
    backups.iter().enumerate().filter(gone).map(|(_, (_, path))| path.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_has_grown_is_put_aside_and_only_so_many_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/audit.log");
        let config = LogConfig { path: path.clone(), max_age: 0, max_backups: 2, max_size: 30 };
        let mut log = Log::open(config).unwrap();
        for second in 0..6 {
            let now = Timestamp::from_second(1_800_000_000 + second).unwrap();
            log.write(&[Bytes::from(format!("{{\"line\":{second},\"x\":1}}"))], now).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"line\":5,\"x\":1}\n");
        let kept = backups(&path).unwrap();
        assert_eq!(kept.len(), 2);
        assert_eq!(fs::read_to_string(&kept[0].1).unwrap(), "{\"line\":4,\"x\":1}\n");
    }

    fn log(path: &Path, max_backups: u32, max_size: u64) -> Log {
        Log::open(LogConfig { path: path.to_owned(), max_age: 0, max_backups, max_size }).unwrap()
    }

    #[test]
    fn a_batch_larger_than_the_limit_spans_several_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let lines: Vec<Bytes> = (0..5).map(|n| Bytes::from(format!("{{\"line\":{n}}}"))).collect();
        log(&path, 0, 25).write(&lines, now).unwrap();
        let mut files: Vec<PathBuf> =
            backups(&path).unwrap().into_iter().map(|(_, path)| path).rev().collect();
        files.push(path);
        let texts = files.iter().map(|path| fs::read_to_string(path).unwrap());
        assert_eq!(
            texts.collect::<Vec<_>>(),
            ["{\"line\":0}\n{\"line\":1}\n", "{\"line\":2}\n{\"line\":3}\n", "{\"line\":4}\n"]
        );
    }

    #[test]
    fn a_line_that_a_killed_process_left_unfinished_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::write(&path, "{\"line\":0}\n{\"li").unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        log(&path, 0, 0).write(&[Bytes::from_static(b"{\"line\":2}")], now).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"line\":0}\n{\"li\n{\"line\":2}\n");
    }

    #[test]
    fn files_that_are_too_old_are_removed() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let at = |text: &str| (time(text), PathBuf::from(text));
        let all =
            [at("2026-01-10T00:00:00Z"), at("2026-01-05T00:00:00Z"), at("2026-01-01T00:00:00Z")];
        let config = LogConfig { path: "a".into(), max_age: 7, max_backups: 0, max_size: 1 };
        let gone = forgotten(&all, &config, time("2026-01-11T00:00:00Z"));
        assert_eq!(gone, [PathBuf::from("2026-01-01T00:00:00Z")]);
    }
}
