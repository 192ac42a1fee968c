//! The source text of shipped modules, for tests that read it. Tests and fakes are left out.

use std::path::Path;

/// Adds the path of each file in the folder and below it, with its code before its tests.
pub(crate) fn collect(folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.contains("test") || name.starts_with("fake") {
            continue;
        }
        if path.is_dir() {
            collect(&path, into);
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            into.push((path.display().to_string(), code));
        }
    }
}
