//! A replica that lies on an image with checksums: damage of the image is never read as data, and
//! is repaired from the other replicas.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use block::ids::{ReplicaId, VolumeId};
use block::repl::control::{FileControl, Record};
use block::run::{AdminReply, AdminRequest};
use block::storage::{Attachment, BaseOf, NewReplica, ReplicaAt};
use block::store::{check_image, record_sums, repair_image};

use crate::cluster::uri;
use crate::lab::{MIB, try_tool};
use crate::node::{Node, alone};
use crate::storage::qemu_io;

const SIZE: u64 = 16 * MIB;
const BLOCK: u64 = 4096;

/// Each MiB has a value of its own.
fn make_image(path: &Path) {
    let content: Vec<u8> = (0..SIZE).map(|at| (at / MIB) as u8 + 1).collect();
    fs::write(path, content).unwrap();
}

/// Of blocks that are not read when the replica is opened.
fn damage(image: &Path, block: u64) {
    assert!(!block.is_multiple_of(65), "this one is a sample of the image's identity");
    let file = fs::File::options().write(true).open(image).unwrap();
    file.write_all_at(&[0xee; 100], block * BLOCK + 7).unwrap();
}

fn read_all(socket: &Path) {
    let reads: Vec<String> = (0..16).map(|at| format!("read -P {} {at}M 1M", at + 1)).collect();
    qemu_io(socket, &reads.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn damage_of_a_base_image_is_repaired_from_the_other_replica() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, image) = (dir.path().join("v.sock"), dir.path().join("backing"));
    make_image(&image);
    record_sums(&image, || true).unwrap();
    let node = Node::start(&dir.path().join("d"), None);
    let (volume, mut client) = (VolumeId::random(), node.client());
    let [linked, whole] = [(); 2].map(|()| ReplicaId::random());
    for (replica, base) in [(linked, Some(BaseOf::Image { path: image.clone() })), (whole, None)] {
        let new = NewReplica { volume, replica, size: SIZE, dir: None, existing: false, base };
        client.create_replica(new).unwrap();
    }
    let record = node.dir().join(format!("records/{volume}.json"));
    FileControl::create(&record, &Record::new([linked])).unwrap();
    let replicas = [linked, whole].map(|id| ReplicaAt { id, at: None, node: None }).to_vec();
    client.attach(Attachment { replicas, ..alone(volume, &socket) }).unwrap();
    node.wait_in_sync(volume, 2);

    // Found by a read, whichever replica answers it.
    damage(&image, 261);
    read_all(&socket);
    // Found by a scrub.
    damage(&image, 1001);
    client.volume(volume, AdminRequest::Scrub).unwrap();
    let done = |state: &block::storage::VolumeState| {
        state.status.as_ref().is_some_and(|it| it.last_scrub.is_some())
    };
    node.wait(volume, "the scrub to end", done);
    let AdminReply::Status(status) = client.volume(volume, AdminRequest::Status).unwrap() else {
        panic!("no status");
    };
    assert!(status.last_scrub.unwrap().bad_blocks >= 1);
    assert!(status.lost.is_empty() && status.disputed.is_empty());

    // The replica on the image has its own copy of these blocks now.
    client.volume(volume, AdminRequest::DropReplica { replica: whole }).unwrap();
    node.wait_in_sync(volume, 1);
    read_all(&socket);
    // Alone it has nothing to repair from: an error, and never the damaged bytes.
    damage(&image, 2000);
    let uri = uri(&socket);
    let read = format!("read -P 8 {} 4k", 2000 * BLOCK);
    let output = try_tool("qemu-io", &["-f", "raw", &uri, "-c", &read]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("read failed"), "{said}");
    let lost = |state: &block::storage::VolumeState| {
        state.status.as_ref().is_some_and(|it| !it.lost.is_empty())
    };
    node.wait(volume, "the lost block to be reported", lost);

    // Another copy of the image repairs the rest.
    let copy = dir.path().join("copy");
    make_image(&copy);
    let found = check_image(&image, || true).unwrap();
    assert_eq!(found.iter().map(|it| it.start / BLOCK).collect::<Vec<_>>(), [261, 1001, 2000]);
    assert!(repair_image(&image, &copy, &found).unwrap().is_empty());
    client.detach(volume).unwrap();
    let replicas = vec![ReplicaAt { id: linked, at: None, node: None }];
    client.attach(Attachment { replicas, ..alone(volume, &socket) }).unwrap();
    node.wait_in_sync(volume, 1);
    client.detach(volume).unwrap();
}
