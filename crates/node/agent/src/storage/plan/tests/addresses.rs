//! Where replicas are reached, and connections that follow.

use super::*;
use crate::storage::status::replica_address;

const STORAGE: &str = "10.9.0.1";
const FIRST: &str = "192.0.2.1";

/// A node with an address for storage, whose storage process listens at these addresses.
fn with_address(listens_also: Option<&[&str]>) -> Scene {
    let mut scene = Scene::settled();
    scene.address = Some(STORAGE.parse().unwrap());
    let state = scene.state();
    state.listen = Some(Address::Tcp(format!("{FIRST}:9000").parse().unwrap()));
    let parse = |all: &[&str]| all.iter().map(|own| own.parse().unwrap()).collect();
    state.listens_also = listens_also.map(parse);
    scene
}

#[test]
fn a_storage_process_listens_at_the_address_for_storage() {
    let scene = with_address(Some(&[]));
    let wanted = vec![format!("{STORAGE}:9000").parse().unwrap()];
    assert_eq!(scene.plan(), [StorageAction::ListenAlso { addresses: wanted }]);
    assert_eq!(replica_address(&scene.world(), FIRST), FIRST, "it does not listen there yet");
    let scene = with_address(Some(&["10.9.0.1:9000"]));
    scene.check(&[]);
    assert_eq!(replica_address(&scene.world(), FIRST), STORAGE);
    let mut without = with_address(Some(&["10.9.0.1:9000"]));
    without.address = None;
    assert_eq!(without.plan(), [StorageAction::ListenAlso { addresses: vec![] }]);
    assert_eq!(replica_address(&without.world(), FIRST), FIRST);
    let mut same = with_address(Some(&[]));
    same.address = Some(FIRST.parse().unwrap());
    same.check(&[]);
}

#[test]
fn an_older_storage_process_is_reached_as_before() {
    let scene = with_address(None);
    scene.check(&[]);
    assert_eq!(replica_address(&scene.world(), FIRST), FIRST);
}

/// A volume with a second replica on another node, which is connected there.
fn two_members(connected: &str) -> Scene {
    let mut scene = Scene::settled();
    let mut second = scene.replica().clone();
    (second.name, second.node) = ("v-r-2".into(), "two".into());
    second.id = ReplicaId::from_u128(9);
    let id = second.id;
    scene.replicas.insert("v-r-2".into(), second);
    scene.engine().replicas.insert("v-r-2".into(), "10.9.0.2:9000".into());
    let at = |address: &str| Some(Address::Tcp(address.parse().unwrap()));
    let volume = &mut scene.state().volumes[0];
    volume.attachment.replicas.push(ReplicaAt { id, at: at("10.9.0.2:9000"), node: None });
    let members = &mut volume.status.as_mut().unwrap().replicas;
    let member = MemberStatus { id, address: at(connected), ..members[0].clone() };
    members.push(member);
    scene
}

#[test]
fn a_replica_at_another_address_is_connected_again_while_the_others_are_in_sync() {
    two_members("10.9.0.2:9000").check(&[]);
    two_members("192.0.2.2:9000").check(&["Reconnect"]);
    let mut rebuilding = two_members("192.0.2.2:9000");
    let status = rebuilding.state().volumes[0].status.as_mut().unwrap();
    status.replicas[0].state = MemberState::Learner;
    rebuilding.check(&[]);
    let mut doubtful = two_members("192.0.2.2:9000");
    doubtful.state().volumes[0].status.as_mut().unwrap().unproven = true;
    doubtful.check(&[]);
}
