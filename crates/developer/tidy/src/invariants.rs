//! Invariants of ARCHITECTURE.md that a search can hold: each names what must not be written,
//! where, and the exceptions with their reasons. An exception that is not needed any more fails.

use crate::sources::{complain, is_test, rust};
use crate::tree::SourceFile;

/// Text that shipped code does not contain below some folders.
struct Absence {
    invariant: &'static str,
    words: &'static [&'static str],
    /// Beginnings of paths in which the words are not allowed, and parts that a path must have.
    below: &'static [&'static str],
    with: &'static str,
    /// Beginnings of paths in which they are allowed nevertheless, and why.
    except: &'static [(&'static str, &'static str)],
}

const ABSENCES: &[Absence] = &[
    Absence {
        invariant: "only the program reads the environment",
        words: &["env::var(", "env::var_os("],
        below: &["crates/"],
        with: "/src/",
        except: &[
            ("crates/program/sheaf/", "the program"),
            ("crates/developer/tidy/", "names the words"),
        ],
    },
    Absence {
        invariant: "only base reads the clock",
        words: &["SystemTime::now(", "Timestamp::now(", "Zoned::now("],
        below: &["crates/"],
        with: "/src/",
        except: &[
            ("crates/foundation/base/", "base::clock"),
            ("crates/developer/tidy/", "names the words"),
        ],
    },
    Absence {
        invariant: "tasks are started by base::Tasks, which counts and ends them",
        words: &["tokio::spawn(", "task::spawn("],
        below: &["crates/"],
        with: "/src/",
        except: &[
            ("crates/foundation/base/src/tasks.rs", "base::Tasks"),
            ("crates/control-plane/apiserver/src/http/server.rs", "connections: counted"),
            ("crates/control-plane/apiserver/src/fairness.rs", "one per queue at most"),
            ("crates/control-plane/apiserver/src/fairness/seated.rs", "ends after a timeout"),
            ("crates/control-plane/apiserver/src/setup/bootstrap.rs", "awaited at the start"),
            ("crates/control-plane/gateway/src/node.rs", "ends with its connection"),
            ("crates/control-plane/gateway/src/stream.rs", "ends with its connection"),
            ("crates/control-plane/steve/src/subscribe.rs", "ends with its connection"),
            ("crates/node/agent/src/volume/upload.rs", "ends with its connection"),
            ("crates/program/sheaf/src/command/send.rs", "a command ends with its process"),
            ("crates/program/sheaf/src/command/vm/", "a command ends with its process"),
            ("crates/developer/", "a program of its own"),
        ],
    },
    Absence {
        invariant: "every queue is bounded",
        words: &["unbounded_channel", "mpsc::channel()", "mpsc::unbounded("],
        below: &["crates/"],
        with: "/src/",
        except: &[
            ("crates/node/block/src/run/shard.rs", "bounded by the requests of its sources"),
            ("crates/node/block/src/run/shard/", "one answer each"),
            ("crates/node/block/src/storage/", "one answer each"),
            ("crates/node/block/src/vhost/device.rs", "one answer each"),
            ("crates/developer/tidy/", "names the words"),
        ],
    },
    Absence {
        invariant: "status codes of HTTP are known only where HTTP is served or asked",
        words: &["StatusCode"],
        below: &[
            "crates/foundation/",
            "crates/control-plane/controllers/",
            "crates/control-plane/store/",
            "crates/control-plane/auth/",
            "crates/node/block/",
            "crates/node/net/",
            "crates/node/qemu/",
        ],
        with: "/src/",
        except: &[
            ("crates/foundation/client/", "asks the API server"),
            ("crates/control-plane/controllers/src/fake.rs", "an API server for tests"),
        ],
    },
    Absence {
        invariant: "controllers read objects through records and the readers of object.rs",
        words: &[".pointer(", ".pointer_mut("],
        below: &["crates/control-plane/controllers/"],
        with: "/src/",
        except: &[
            ("crates/control-plane/controllers/src/object.rs", "the readers"),
            ("crates/control-plane/controllers/src/json_patch.rs", "patches consist of pointers"),
            ("crates/control-plane/controllers/src/copied_spec.rs", "copies change in place"),
        ],
    },
    Absence {
        invariant: "plans are pure: not async, no I/O, no clock",
        words: &["async ", ".await", "std::fs", "tokio::", "clock::now", "Instant::now"],
        below: &["crates/"],
        with: "/plan",
        except: &[],
    },
];

/// The lines outside inline tests and comments, with their numbers.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    shipped
        .lines()
        .enumerate()
        .filter(move |(_, line)| !is_comment(line))
        .map(|(index, line)| (index + 1, line))
}

/// Where words are that must not be there, and exceptions that nothing needs.
fn violations(files: &[SourceFile], absences: &[Absence]) -> Vec<String> {
    let mut found = Vec::new();
    for absence in absences {
        let mut unused: Vec<&str> = absence.except.iter().map(|(path, _)| *path).collect();
        for file in files.iter().filter(|file| !is_test(&file.path)) {
            let applies = absence.below.iter().any(|below| file.path.starts_with(below));
            if !applies || !file.path.contains(absence.with) {
                continue;
            }
            let is_bad = |line: &str| absence.words.iter().any(|word| line.contains(word));
            let bad: Vec<_> = code(&file.text).filter(|(_, line)| is_bad(line)).collect();
            if bad.is_empty() {
                continue;
            }
            let exception = absence.except.iter().find(|(path, _)| file.path.starts_with(path));
            if let Some((path, _)) = exception {
                unused.retain(|own| own != path);
                continue;
            }
            for (line, text) in bad {
                let text = text.trim();
                found.push(format!("{}: {}:{line}: {text}", absence.invariant, file.path));
            }
        }
        let unused = unused.into_iter();
        found.extend(unused.map(|path| format!("{}: {path} is no exception", absence.invariant)));
    }
    found
}

#[test]
fn invariants_hold() {
    let files: Vec<SourceFile> = rust().collect();
    complain("invariants of ARCHITECTURE.md", &violations(&files, ABSENCES));
}

#[test]
fn words_are_found_outside_tests_and_exceptions() {
    let absence = Absence {
        invariant: "no pointers",
        words: &[".pointer(", ".pointer_mut("],
        below: &["crates/c/"],
        with: "/src/",
        except: &[
            ("crates/c/src/reader.rs", "the reader"),
            ("crates/c/src/gone.rs", "not needed any more"),
        ],
    };
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    let files = [
        file("crates/c/src/reader.rs", "a.pointer(b)"),
        file("crates/c/src/plan.rs", "let a = 1;\na.pointer_mut(b)\n"),
        file("crates/c/src/plan/tests.rs", "a.pointer(b)"),
        file(
            "crates/c/src/inline.rs",
            "// a.pointer(b)\n#[cfg(test)]\nmod tests {\na.pointer(b)\n}",
        ),
        file("crates/d/src/other.rs", "a.pointer(b)"),
    ];
    let expected = [
        "no pointers: crates/c/src/plan.rs:2: a.pointer_mut(b)",
        "no pointers: crates/c/src/gone.rs is no exception",
    ];
    assert_eq!(violations(&files, &[absence]), expected);
}

#[test]
fn comments_and_tests_are_not_code() {
    let text = "a\n// b\nc\n#[cfg(test)]\nmod tests {\nd\n}\n";
    assert_eq!(code(text).collect::<Vec<_>>(), [(1, "a"), (3, "c")]);
}
