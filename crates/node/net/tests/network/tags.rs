//! Frames with VLAN tags, which must not pass the rules of a port that has none.

use std::os::fd::OwnedFd;

use net::{Attachment, Mac, Network, Port, PortVlan, Queues, SpoofGuard, open_tap};
use rustix::event::{PollFd, PollFlags, poll};

use crate::world::{World, in_both_worlds, port, run};

pub(crate) const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
/// The prefix of a frame on a tap: a header about offloads, all of which are off.
pub(crate) const OFFLOAD_HEADER: [u8; 10] = [0; 10];

/// A datagram from a port to a port, as a frame with tags.
fn datagram(from: Mac, to: Mac, tags: &[(u16, u16)], ports: (u16, u16), text: &str) -> Vec<u8> {
    let udp_length = u16::try_from(8 + text.len()).unwrap();
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp_length).to_be_bytes());
    ip.extend([0, 1, 0, 0, 64, 17, 0, 0, 198, 51, 100, 7, 198, 51, 100, 8]);
    let sum: u32 = ip.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = !(u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap());
    ip[10..12].copy_from_slice(&folded.to_be_bytes());
    let mut frame = OFFLOAD_HEADER.to_vec();
    frame.extend(to.octets());
    frame.extend(from.octets());
    for (kind, vlan) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([0x08, 0x00]);
    frame.extend(ip);
    for field in [ports.0, ports.1, udp_length, 0] {
        frame.extend(field.to_be_bytes());
    }
    frame.extend(text.as_bytes());
    frame
}

pub(crate) struct Cable {
    end: OwnedFd,
    pub(crate) mac: Mac,
}

impl Cable {
    fn plug(port: &Port) -> Self {
        Self { end: open_tap(&port.tap, Queues::Single, 1).unwrap().remove(0), mac: port.mac }
    }

    pub(crate) fn send(&self, to: Mac, tags: &[(u16, u16)], source: u16, text: &str) {
        self.send_frame(&datagram(self.mac, to, tags, (source, 68), text));
    }

    pub(crate) fn send_frame(&self, frame: &[u8]) {
        rustix::io::write(&self.end, frame).unwrap();
    }

    /// Waits until frames of this cable reach another: a bridge forwards only what comes through a
    /// port after the kernel has noticed its carrier.
    pub(crate) fn wait_for_way_to(&self, other: &Self) {
        let mut frame = vec![0; 2000];
        for _ in 0..3000 {
            self.send(other.mac, &[], 5000, "is there a way");
            let mut ready = [PollFd::new(&other.end, PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            while poll(&mut ready, Some(&limit)).unwrap() == 1 {
                let length = rustix::io::read(&other.end, &mut frame).unwrap();
                if frame[..length].ends_with(b"is there a way") {
                    return;
                }
            }
        }
        panic!("no frame arrives");
    }

    /// Which of `texts` arrive, up to the last of them: the wire keeps the order.
    pub(crate) fn receives<'a>(&self, texts: &[&'a str]) -> Vec<&'a str> {
        let mut received = Vec::new();
        let mut frame = vec![0; 2000];
        while received.last() != texts.last() {
            let mut ready = [PollFd::new(&self.end, PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
            assert_eq!(poll(&mut ready, Some(&limit)).unwrap(), 1, "received only {received:?}");
            let length = rustix::io::read(&self.end, &mut frame).unwrap();
            let ends = |text: &&&str| frame[..length].ends_with(text.as_bytes());
            received.extend(texts.iter().find(ends));
        }
        received
    }
}

pub(crate) async fn on_lan(network: &Network, number: u8, guard: SpoofGuard) -> Cable {
    let attachment =
        Attachment::Bridge { name: "br-lan".parse().unwrap(), guard, vlans: PortVlan::untagged() };
    let port = Port { attachment, ..port(number) };
    network.attach(port.clone()).await.unwrap();
    Cable::plug(&port)
}

#[test]
fn tagged_frames_do_not_pass_the_rules_of_access_ports() {
    in_both_worlds(async |world: World| {
        run("ip link add br-lan type bridge");
        run("ip link set br-lan up");
        let network = world.network(vec![]).await;
        let access = SpoofGuard { own_mac_only: true, no_servers: true, access_port: true };
        let no_servers = SpoofGuard { access_port: false, ..access };
        let guest = on_lan(&network, 7, access).await;
        let router = on_lan(&network, 8, no_servers).await;
        let witness = on_lan(&network, 9, SpoofGuard::default()).await;

        guest.wait_for_way_to(&witness);
        router.wait_for_way_to(&witness);
        guest.send(witness.mac, &[], 67, "untagged server");
        guest.send(witness.mac, &[(CUSTOMER_TAG, 0)], 67, "server with a priority tag");
        guest.send(witness.mac, &[(CUSTOMER_TAG, 0)], 5000, "priority tag");
        guest.send(witness.mac, &[(CUSTOMER_TAG, 100)], 5000, "tag");
        guest.send(witness.mac, &[(SERVICE_TAG, 100)], 5000, "service tag");
        guest.send(witness.mac, &[(CUSTOMER_TAG, 1), (CUSTOMER_TAG, 100)], 5000, "two tags");
        guest.send(Mac::new([1, 0x80, 0xc2, 0, 0, 0]), &[], 5000, "to bridges");
        guest.send(witness.mac, &[], 5000, "untagged");
        // A port that may send tags is still no server behind one.
        router.send(witness.mac, &[(CUSTOMER_TAG, 0)], 67, "tagged server of a trunk");
        router.send(witness.mac, &[(CUSTOMER_TAG, 100)], 67, "server of a trunk in its network");
        router.send(witness.mac, &[(CUSTOMER_TAG, 100)], 5000, "tag of a trunk");
        router.send(witness.mac, &[], 5000, "end");
        let sent = [
            "untagged server",
            "server with a priority tag",
            "priority tag",
            "service tag",
            "two tags",
            "to bridges",
            "untagged",
            "tagged server of a trunk",
            "server of a trunk in its network",
            "tag of a trunk",
            "tag",
            "end",
        ];
        assert_eq!(witness.receives(&sent), ["untagged", "tag of a trunk", "end"]);

        // Nor does a frame for another network reach an access port.
        witness.send(guest.mac, &[(CUSTOMER_TAG, 100)], 5000, "tag");
        witness.send(guest.mac, &[(SERVICE_TAG, 100)], 5000, "service tag");
        witness.send(guest.mac, &[], 5000, "end");
        assert_eq!(guest.receives(&["service tag", "tag", "end"]), ["end"]);
        let rules = run("nft list table bridge sheaf");
        let drops = rules.lines().find(|line| line.contains("8021q") && line.contains("counter"));
        assert!(drops.is_some_and(|line| line.contains("packets 5")), "{rules}");
    });
}
