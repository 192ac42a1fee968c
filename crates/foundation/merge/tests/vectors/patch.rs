//! `patch.txt`: JSON patches, with the texts of their failures.

use merge::json_patch;

use super::json;

#[test]
fn json_patches_work_and_fail_as_upstream_says() {
    let mut lines =
        include_str!("patch.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let document = json(lines.next().unwrap());
    let mut wrong = Vec::new();
    for line in lines {
        let (patch, expected) = line.split_once(" | ").unwrap();
        let found = match json_patch(&document, &json(patch)) {
            Ok(found) => found.to_string(),
            Err(error) => format!("! {error}"),
        };
        let expected = match expected.strip_prefix("! ") {
            Some(_) => expected.to_owned(),
            None => json(expected).to_string(),
        };
        if found != expected {
            wrong.push(format!("{patch}\n  found    {found}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
