//! The answers of upstream's kube-apiserver, and ours beside them.
//!
//! `upstream/corpus/*.http` are requests; `upstream/golden/*.txt` are what upstream said to
//! them, without what differs from run to run. Intended differences are listed,
//! with the reason, in `upstream/exceptions.txt`; an exception that is none any more fails.
//!
//! To record, name upstream's program: `UPSTREAM=…/kube-apiserver make e2e ARGS=upstream::`.

mod corpus;
mod normal;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use corpus::{Exchange, parse};
use http::Request;
use normal::Normal;

use crate::harness::{Etcd, Foreign, Http, Reply, poll};

/// How long a server may need until it applies what was written: definitions, roles, policies.
const APPLY_TIMEOUT: Duration = Duration::from_secs(300);
/// Flags for both servers, beyond what suites give.
const MORE: &[&str] = &["--enable-admission-plugins=OwnerReferencesPermissionEnforcement"];

#[test]
fn upstream_would_say_the_same() {
    if let Some(program) = std::env::var_os("UPSTREAM") {
        return record(&Foreign::of(Path::new(&program), &Etcd::start(), MORE));
    }
    let wrong = compare(&Foreign::start(&Etcd::start(), MORE));
    let complaints: String =
        wrong.iter().map(|(label, difference)| format!("\n=== {label}{difference}")).collect();
    assert!(wrong.is_empty(), "{} differ (- upstream, + ours):\n{complaints}", wrong.len());
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/upstream").join(name)
}

/// The files of requests that were chosen: all, or those that `CORPUS` names.
fn files() -> Vec<(String, Vec<Exchange>)> {
    let chosen = std::env::var("CORPUS").ok();
    let mut files = Vec::new();
    for entry in fs::read_dir(directory("corpus")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if chosen.as_ref().is_none_or(|chosen| chosen.split(',').any(|one| one == name)) {
            files.push((name, parse(&fs::read_to_string(path).unwrap())));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

fn record(server: &Foreign) {
    let version = server.http().get("/version").ok();
    let version = version["gitVersion"].as_str().unwrap();
    for (name, exchanges) in files() {
        let mut text = format!("# What kube-apiserver {version} answers to {name}.http.\n");
        for (title, answer) in play(server, &exchanges) {
            write!(text, "\n### {title}\n{answer}").unwrap();
        }
        fs::write(directory("golden").join(format!("{name}.txt")), text).unwrap();
    }
}

/// Where our answers are not as expected, by file and title.
fn compare(server: &Foreign) -> BTreeMap<String, String> {
    let mut exceptions = exceptions();
    let mut wrong = BTreeMap::new();
    for (name, exchanges) in files() {
        let golden = directory("golden").join(format!("{name}.txt"));
        let golden = fs::read_to_string(&golden)
            .unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
        let golden = answers(&golden);
        for (title, ours) in play(server, &exchanges) {
            let label = format!("{name}: {title}");
            let excepted = exceptions.remove(&label);
            let Some(theirs) = golden.get(&title) else {
                wrong.insert(label, "\nnot recorded".to_owned());
                continue;
            };
            if (ours == *theirs) == excepted {
                let note = if excepted { " (an exception that is none any more)" } else { "" };
                wrong.insert(label, format!("{note}\n{}", difference(theirs, &ours)));
            }
        }
    }
    if std::env::var_os("CORPUS").is_none() {
        let unused = |label| (label, ": an exception for no request".to_owned());
        wrong.extend(exceptions.into_iter().map(unused));
    }
    wrong
}

/// Lines `file: title`; a comment above says why.
fn exceptions() -> BTreeSet<String> {
    let text = fs::read_to_string(directory("exceptions.txt")).unwrap();
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// The recorded answers by title.
fn answers(golden: &str) -> BTreeMap<String, String> {
    let blocks = golden.split("\n### ").skip(1);
    let block = |block: &str| {
        let (title, answer) = block.split_once('\n').unwrap();
        (title.to_owned(), format!("{}\n", answer.trim_end()))
    };
    blocks.map(block).collect()
}

/// Sends one file's requests in order; each may use what earlier answers brought.
fn play(server: &Foreign, exchanges: &[Exchange]) -> Vec<(String, String)> {
    let http = server.http();
    let mut saved = BTreeMap::new();
    let mut normal = Normal::new(server.port());
    let mut played = Vec::new();
    for exchange in exchanges {
        let reply = send(&http, exchange, &saved);
        for (name, pointer) in &exchange.save {
            let value = reply.json().pointer(pointer).cloned().unwrap_or_default();
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            saved.insert(name.clone(), text);
        }
        played.push((exchange.title.clone(), normal.answer(&reply, exchange)));
    }
    played
}

/// The answer; where a status is waited for, the first with it, or the last of a while.
fn send(http: &Http, exchange: &Exchange, saved: &BTreeMap<String, String>) -> Reply {
    let mut filled = exchange.clone();
    for (name, value) in saved {
        let hole = format!("{{{{{name}}}}}");
        filled.path = filled.path.replace(&hole, value);
        filled.body = filled.body.replace(&hole, value);
    }
    let began = Instant::now();
    poll(&exchange.title, || {
        let mut request = Request::builder().method(filled.method.as_str()).uri(&filled.path);
        for (name, value) in &filled.headers {
            request = request.header(name, value);
        }
        let reply = http.try_send(request, filled.body.clone())?;
        match filled.until {
            Some(status) if status != reply.status && began.elapsed() < APPLY_TIMEOUT => {
                Err(format!("{}: {}", reply.status, reply.text()))
            }
            _ => Ok(reply),
        }
    })
}

/// The lines that differ, with one line around them.
fn difference(theirs: &str, ours: &str) -> String {
    let (theirs, ours): (Vec<&str>, Vec<&str>) = (theirs.lines().collect(), ours.lines().collect());
    let common = longest_common(&theirs, &ours);
    let (mut text, mut i, mut j) = (String::new(), 0, 0);
    for (a, b) in common.into_iter().chain([(theirs.len(), ours.len())]) {
        let changed = i < a || j < b;
        if changed && i > 0 {
            writeln!(text, "  {}", theirs[i - 1]).unwrap();
        }
        theirs[i..a].iter().for_each(|line| writeln!(text, "- {line}").unwrap());
        ours[j..b].iter().for_each(|line| writeln!(text, "+ {line}").unwrap());
        (i, j) = (a + 1, b + 1);
    }
    text
}

/// Pairs of positions of a longest common subsequence.
fn longest_common(a: &[&str], b: &[&str]) -> Vec<(usize, usize)> {
    let mut length = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            length[i][j] = if a[i] == b[j] {
                length[i + 1][j + 1] + 1
            } else {
                length[i + 1][j].max(length[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if length[i + 1][j] >= length[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}
