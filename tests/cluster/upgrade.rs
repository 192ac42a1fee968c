//! A cluster of a management node and a worker is upgraded: the worker gets the program from the
//! API, and comes second.

use super::join::until_ready;
use super::lab::{Wire, token};
use crate::harness::{Node, assert_has};
use crate::upgrade::{other_program, program_of};

#[test]
fn nodes_are_upgraded_one_after_the_other_and_go_back() {
    let wire = Wire::new("shfupgr", "10.199.57");
    let one = Node::listening(&wire.here());
    let (url, text) = token(&one.sheaf.run("token create"));
    let mut two = wire.outsider(&url, &text, "two");
    two.sheaf.begin();
    until_ready(&one, "two");
    let folder = tempfile::tempdir().unwrap();
    let new = other_program(folder.path());
    let printed = one.sheaf.run(&format!("upgrade --binary {}", new.display()));
    let at =
        |part: &str| printed.find(part).unwrap_or_else(|| panic!("no {part:?} in:\n{printed}"));
    // The restart of the management node may end the connection before its own line is printed.
    let first = printed.find("node one restarts with the new program");
    assert!(first.unwrap_or(0) < at("node two restarts"), "{printed}");
    let is_new =
        |node: &Node| program_of(node.sheaf.pid()).to_string_lossy().contains("/programs/");
    assert!(is_new(&one) && is_new(&two));
    // The worker has only what it needs; no other node gets the program.
    let digest = program_of(two.sheaf.pid());
    let digest = digest.file_name().unwrap().to_string_lossy().into_owned();
    let refused = one.sheaf.http().get(&format!("/sheaf/v1/programs/{digest}"));
    assert_has(refused.refused(403), "handed to nodes of the cluster only");
    let printed = one.sheaf.run("upgrade abort");
    assert_has(&printed, "all nodes have gone back");
    assert!(!is_new(&one) && !is_new(&two));
    assert_has(one.sheaf.run("upgrade status"), "aborted: every node runs the program before");
}
