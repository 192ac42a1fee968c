//! The real kubectl, in every version that this machine has.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// All kubectls of this machine, oldest first, one per minor version.
pub(crate) fn kubectls() -> &'static [Kubectl] {
    static FOUND: LazyLock<Vec<Kubectl>> = LazyLock::new(find);
    assert!(!FOUND.is_empty(), "there is no kubectl in PATH; `scripts/setup test` brings one");
    &FOUND
}

/// The one in `PATH`, and what lies beside it or beside what it links to.
fn find() -> Vec<Kubectl> {
    let mut found = BTreeMap::new();
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        let Ok(program) = folder.join("kubectl").canonicalize() else { continue };
        let beside = program.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
        let named = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // kubectl-foo is a plugin.
            name.strip_prefix("kubectl").is_some_and(|rest| !rest.starts_with(['-', '_']))
        };
        for path in beside.map(|entry| entry.path()).filter(named).chain([program]) {
            if let Some(minor) = minor(&path) {
                found.entry(minor).or_insert(path);
            }
        }
    }
    let kubectl =
        |(minor, program)| Kubectl { program, minor, arguments: vec![], home: "/".into() };
    found.into_iter().map(kubectl).collect()
}

fn minor(program: &Path) -> Option<u32> {
    let output = Command::new(program).args(["version", "--client", "-o", "json"]).output().ok()?;
    let version: Value = serde_json::from_slice(&output.stdout).ok()?;
    let text = version["clientVersion"]["gitVersion"].as_str()?;
    // A dispatcher is not itself a kubectl of that version: it starts another one.
    if text.contains("dispatcher") {
        return None;
    }
    text.split('.').nth(1)?.parse().ok()
}

#[derive(Clone)]
pub(crate) struct Kubectl {
    program: PathBuf,
    minor: u32,
    arguments: Vec<String>,
    /// For its caches: one test must not use those of another.
    home: PathBuf,
}

impl Kubectl {
    pub(crate) fn on(&self, kubeconfig: &Path, home: &Path) -> Self {
        let arguments = vec![format!("--kubeconfig={}", kubeconfig.display())];
        Self { arguments, home: home.to_owned(), ..self.clone() }
    }

    /// The 33 of 1.33.
    pub(crate) fn minor(&self) -> u32 {
        self.minor
    }

    /// The same with a global argument, as `--as=jane`.
    pub(crate) fn with(&self, argument: &str) -> Self {
        let mut kubectl = self.clone();
        kubectl.arguments.push(argument.to_owned());
        kubectl
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(words(line))
            .args(&self.arguments)
            .env("HOME", &self.home)
            .env_remove("KUBECONFIG")
            .env_remove("KUBECACHEDIR");
        command
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        self.feed(line, "")
    }

    /// The same with something on standard input.
    #[track_caller]
    pub(crate) fn feed(&self, line: &str, input: &str) -> String {
        let output = self.output(line, input);
        let (out, complaint) = texts(&output);
        assert!(
            output.status.success(),
            "kubectl 1.{} {line}: {}\n{complaint}\n{out}",
            self.minor,
            output.status
        );
        out
    }

    /// `kubectl apply -f -`
    #[track_caller]
    pub(crate) fn apply(&self, manifest: &str) -> String {
        self.feed("apply -f -", manifest)
    }

    /// Standard error of a command that must fail.
    #[track_caller]
    pub(crate) fn fails(&self, line: &str) -> String {
        self.fails_with(line, "")
    }

    #[track_caller]
    pub(crate) fn fails_with(&self, line: &str, input: &str) -> String {
        let output = self.output(line, input);
        let (out, complaint) = texts(&output);
        assert!(!output.status.success(), "kubectl 1.{} {line} succeeded:\n{out}", self.minor);
        complaint
    }

    /// One value, by JSONPath.
    #[track_caller]
    pub(crate) fn value(&self, line: &str, path: &str) -> String {
        self.run(&format!("{line} -o jsonpath={{{path}}}"))
    }

    pub(crate) fn output(&self, line: &str, input: &str) -> Output {
        let mut child = self
            .command(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // kubectl takes what begins with a brace for strict JSON; tests write brief YAML.
        let input = if input.starts_with('{') { format!("---\n{input}") } else { input.to_owned() };
        // Its own thread: kubectl may write much before it has read all.
        let feeder = thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        // It may end without reading what it does not need.
        let _ = feeder.join().unwrap();
        output
    }

    /// Starts a command that goes on, and reads what it prints line by line.
    pub(crate) fn follow(&self, line: &str) -> Following {
        let mut child =
            self.command(line).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Following { child, lines: read(stdout) }
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Splits as a shell would: by spaces, except within single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A command that goes on until this is dropped.
pub(crate) struct Following {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Following {
    /// The next line; there must be one.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(600)).expect("it prints a line")
    }

    /// Whether a line with `part` comes within a moment.
    pub(crate) fn seen(&self, part: &str) -> bool {
        let moment = Duration::from_millis(500);
        self.lines.recv_timeout(moment).is_ok_and(|line| line.contains(part))
    }

    /// Skips lines until one contains `part`.
    #[track_caller]
    pub(crate) fn until(&self, part: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Waits for the end, which must be a success.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "it ended with {status}");
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1000);
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
