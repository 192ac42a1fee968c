//! A data directory on which a server has run, so that not every test waits for the first objects
//! of a new cluster. It is made once per build of the binary, and copied for each test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use super::server::{Sheaf, binary};
use super::wait::poll;

const PREFIX: &str = "data-";

/// Copies the directory to a place that does not exist yet.
pub(super) fn copy_to(data: &Path) {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    copy(TEMPLATE.get_or_init(template), data);
}

/// The directory of the binary that is tested; those of others are removed.
fn template() -> PathBuf {
    let built = fs::metadata(binary()).unwrap().modified().unwrap();
    let built = built.duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = home.join(format!("{PREFIX}{built}"));
    if path.exists() {
        return path;
    }
    for entry in fs::read_dir(home).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let mut server = Sheaf::with(&[]);
    let http = server.http();
    poll("controllers have seen every namespace", || {
        let count = |path: &str| http.get(path).json()["items"].as_array().map_or(0, Vec::len);
        let wanted = count("/api/v1/namespaces");
        let found = count("/api/v1/configmaps?fieldSelector=metadata.name%3Dkube-root-ca.crt");
        if found == wanted { Ok(()) } else { Err(format!("{found} of {wanted}")) }
    });
    server.terminate();
    let unfinished = tempfile::Builder::new().prefix("unfinished-").tempdir_in(home).unwrap();
    let unfinished = unfinished.path().join("data");
    copy(&server.data(), &unfinished);
    // Another run of the tests may have been faster.
    let renamed = fs::rename(&unfinished, &path);
    assert!(renamed.is_ok() || path.exists(), "cannot rename: {renamed:?}");
    path
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
