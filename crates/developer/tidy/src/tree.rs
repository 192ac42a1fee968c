//! The files of the source tree, and the dependencies that manifests declare.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the workspace begins.
pub(crate) fn root() -> PathBuf {
    // Cargo runs tests in their crate's folder. A path fixed at build time would be that of
    // another checkout where two share a build cache.
    let root = Path::new("../../..");
    root.canonicalize().expect("this crate lies three levels below the root")
}

/// One text file that is part of the project.
pub(crate) struct SourceFile {
    /// Relative to the root.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All text files below the root, without what builds or clones leave there.
pub(crate) fn sources() -> Vec<SourceFile> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    assert!(found.len() > 100, "only {} files below {}", found.len(), root.display());
    found
}

fn collect(root: &Path, dir: &Path, found: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(dir).expect("the tree can be read").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name == ".git" || name == "target" || name == "node_modules" {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(root, &path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root).expect("it was found below the root");
            found.push(SourceFile { path: path.display().to_string(), text });
        }
    }
}

/// Lines of all Rust files of a crate, tests included.
pub(crate) fn lines(name: &str) -> usize {
    let prefix = format!("crates/{}/{name}/", folders()[name]);
    let rust = sources().into_iter().filter(|file| file.path.ends_with(".rs"));
    rust.filter(|file| file.path.starts_with(&prefix)).map(|file| file.text.lines().count()).sum()
}

/// The folder below `crates/` in which each crate lies.
pub(crate) fn folders() -> BTreeMap<String, String> {
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let list = |dir: PathBuf| fs::read_dir(dir).expect("the folder can be read").flatten();
    let mut found = BTreeMap::new();
    for folder in list(root().join("crates")) {
        for entry in list(folder.path()) {
            found.insert(name(&entry), name(&folder));
        }
    }
    found
}

/// For each crate of the workspace, the crates of the workspace that it is built from.
pub(crate) fn edges() -> BTreeMap<String, Vec<String>> {
    let manifests: BTreeMap<String, String> = folders()
        .into_iter()
        .map(|(name, folder)| {
            let path = root().join("crates").join(folder).join(&name).join("Cargo.toml");
            let manifest = fs::read_to_string(path).expect("every crate has a manifest");
            (name, manifest)
        })
        .collect();
    let ours = |name: &&str| manifests.contains_key(*name);
    let edges = manifests.iter().map(|(name, manifest)| {
        let uses = dependencies(manifest).into_iter().filter(ours).map(str::to_owned).collect();
        (name.clone(), uses)
    });
    edges.collect()
}

/// The names in `[dependencies]` and `[build-dependencies]`; dependencies of tests are not
/// restricted.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = matches!(line, "[dependencies]" | "[build-dependencies]");
        } else if inside && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            names.push(name.trim());
        }
    }
    names
}
