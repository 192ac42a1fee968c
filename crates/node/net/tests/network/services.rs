//! DHCP and DNS, asked by real clients.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use net::{Dhcp, DhcpOptions, Dns, Lease, PrivateOption, Upstreams};

use crate::world::{
    GATEWAY, Guest, LIMIT, OUTSIDE, World, address, eventually, in_world, port, run,
};

/// Configures the interface as DHCP says, and shows all that it said.
const SCRIPT: &str = "#!/bin/sh
echo \"event=$1\"
[ \"$1\" = bound ] || [ \"$1\" = renew ] || exit 0
ip address replace $ip/$mask dev $interface
ip route replace default via $router
env
";

pub(crate) struct Client {
    script: tempfile::TempPath,
}

impl Client {
    pub(crate) fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), SCRIPT).unwrap();
        let script = file.into_temp_path();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
        Self { script }
    }

    /// One exchange; the values that the client received, or nothing.
    pub(crate) async fn ask(&self, guest: &Guest, arguments: &str) -> Option<Vec<String>> {
        let (script, name) = (self.script.display(), &guest.inside.name);
        let command = format!(
            "netns exec {name} busybox udhcpc -f -q -n -i eth0 -t 3 -T 1 -A 1 -s {script} {arguments}"
        );
        // The server runs on this thread: the client must not block it.
        let running = tokio::process::Command::new("ip")
            .args(command.split_whitespace())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(LIMIT, running).await.unwrap().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| text.lines().map(str::to_owned).collect())
    }
}

fn lease(number: u8) -> Lease {
    Lease { mac: port(number).mac, address: address(number), options: DhcpOptions::default() }
}

#[track_caller]
pub(crate) fn assert_received(received: &Option<Vec<String>>, lines: &[&str]) {
    let received = received.as_ref().expect("an answer");
    for line in lines {
        assert!(received.iter().any(|one| one == line), "{line} is not in {received:#?}");
    }
}

#[test]
fn a_guest_gets_its_own_address_and_everything_it_was_promised() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2), port(3)]).await;
        let dhcp = Dhcp::start(&network, &world.tasks).unwrap();
        let options = DhcpOptions {
            dns: vec![],
            mtu: Some(1400),
            hostname: Some("web-1".into()),
            domain: Some("vm.example".into()),
            search: vec!["a.example".into(), "b.example".into()],
            ntp: vec![[192, 0, 2, 123].into()],
            tftp_server: Some("192.0.2.69".into()),
            bootfile: Some("pxelinux.0".into()),
            private: vec![PrivateOption { code: 240, value: "extra".into() }],
        };
        dhcp.replace(vec![Lease { options, ..lease(2) }, lease(3)]).unwrap();
        let guest = Guest::plug(port(2));
        let asked = "-O mtu -O hostname -O domain -O search -O ntpsrv -O tftp -O bootfile -O 240";
        let received = Client::new().ask(&guest, asked).await;
        assert_received(
            &received,
            &[
                "event=bound",
                "ip=10.52.0.2",
                "mask=24",
                "router=10.52.0.1",
                "dns=10.52.0.1",
                "serverid=10.52.0.1",
                "lease=86400",
                "mtu=1400",
                "hostname=web-1",
                "domain=vm.example",
                "search=a.example b.example",
                "ntpsrv=192.0.2.123",
                "tftp=192.0.2.69",
                "siaddr=192.0.2.69",
                "bootfile=pxelinux.0",
                "boot_file=pxelinux.0",
                "opt240=6578747261",
            ],
        );
        assert!(guest.inside.reaches(GATEWAY));
    });
}

#[test]
fn clients_that_want_a_broadcast_or_come_back_are_served() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2)]).await;
        let dhcp = Dhcp::start(&network, &world.tasks).unwrap();
        dhcp.insert(lease(2)).unwrap();
        let guest = Guest::plug(port(2));
        let client = Client::new();
        assert_received(&client.ask(&guest, "-B").await, &["ip=10.52.0.2"]);
        assert_received(&client.ask(&guest, "-r 10.52.0.2").await, &["ip=10.52.0.2"]);
        assert_received(&client.ask(&guest, "-r 10.52.0.77").await, &["ip=10.52.0.2"]);
        assert_received(&client.ask(&guest, "-C").await, &["ip=10.52.0.2"]);
    });
}

/// The firmware of a real QEMU asks for an address, and then for the file of its lease.
#[test]
fn a_machine_boots_from_the_network() {
    in_world(async |world: World| {
        let outside = world.outside();
        let network = world.network(vec![port(2)]).await;
        let dhcp = Dhcp::start(&network, &world.tasks).unwrap();
        let options = DhcpOptions {
            tftp_server: Some(OUTSIDE.to_string()),
            bootfile: Some("boot/loader".into()),
            ..DhcpOptions::default()
        };
        dhcp.insert(Lease { options, ..lease(2) }).unwrap();
        let tftp = outside.within(|| UdpSocket::bind((OUTSIDE, 69)).unwrap());
        tftp.set_nonblocking(true).unwrap();
        let machine = "-machine q35,accel=tcg -m 64 -nodefaults -display none -boot n \
                       -netdev tap,id=n,ifname=shf-2,script=no,downscript=no \
                       -device virtio-net-pci,netdev=n,mac=02:00:00:00:00:02";
        let _machine = tokio::process::Command::new("qemu-system-x86_64")
            .args(machine.split_whitespace())
            .kill_on_drop(true)
            .spawn()
            .expect("this test needs qemu-system-x86_64");
        let mut request = [0; 512];
        let limit = Duration::from_secs(120);
        let asking = async {
            loop {
                if let Ok(length) = tftp.recv(&mut request) {
                    return length;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let length = tokio::time::timeout(limit, asking).await.expect("a request for the file");
        assert!(request[..length].starts_with(b"\x00\x01boot/loader\x00"));
    });
}

#[test]
fn guests_without_a_lease_get_no_answer() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2)]).await;
        let dhcp = Dhcp::start(&network, &world.tasks).unwrap();
        let guest = Guest::plug(port(2));
        let client = Client::new();
        assert_eq!(client.ask(&guest, "").await, None);
        dhcp.insert(lease(2)).unwrap();
        assert!(client.ask(&guest, "").await.is_some());
        dhcp.remove(lease(2).mac);
        assert_eq!(client.ask(&guest, "").await, None);
    });
}

/// The request of a guest long after it was configured: to the server alone, from its own address.
#[test]
fn a_lease_is_renewed_by_unicast_also_after_a_restart() {
    in_world(async |mut world: World| {
        let network = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        for round in ["first", "after the restart"] {
            let dhcp = Dhcp::start(&network, &world.tasks).unwrap();
            dhcp.insert(lease(2)).unwrap();
            let socket = guest.inside.within(|| UdpSocket::bind("0.0.0.0:68").unwrap());
            socket.set_nonblocking(true).unwrap();
            let mut request = vec![0; 240];
            request[..4].copy_from_slice(&[1, 1, 6, 0]);
            request[4..8].copy_from_slice(b"sheaf"[..4].as_ref());
            request[12..16].copy_from_slice(&address(2).octets());
            request[28..34].copy_from_slice(&port(2).mac.octets());
            request[236..].copy_from_slice(&[99, 130, 83, 99]);
            request.extend([53, 1, 3, 255]);
            guest.inside.within(|| socket.send_to(&request, (GATEWAY, 67)).unwrap());
            let mut answer = [0; 1500];
            let mut length = None;
            let start = std::time::Instant::now();
            while length.is_none() {
                assert!(start.elapsed() < LIMIT, "no answer, {round}");
                tokio::time::sleep(Duration::from_millis(10)).await;
                length = socket.recv(&mut answer).ok();
            }
            assert_eq!(answer[16..20], address(2).octets(), "{round}");
            let kind = answer.windows(3).any(|bytes| bytes == [53, 1, 5]);
            assert!(kind, "an acknowledgement, {round}");
            world.restart().await;
            drop(socket);
            if round == "first" {
                drop(world.network(vec![port(2)]).await);
            }
        }
    });
}

#[test]
fn dhcp_follows_the_bridge_when_it_is_made_anew() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2)]).await;
        let dhcp = Dhcp::start(&network, &world.tasks).unwrap();
        dhcp.insert(lease(2)).unwrap();
        let guest = Guest::plug(port(2));
        run("ip link delete sheaf0");
        network.resync().await.unwrap();
        assert!(Client::new().ask(&guest, "").await.is_some());
    });
}

#[test]
fn a_guest_that_plays_dhcp_server_is_ignored() {
    in_world(async |world: World| {
        let _network = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        let listener = UdpSocket::bind("0.0.0.0:67").unwrap();
        listener.set_nonblocking(true).unwrap();
        let send = |from: u16| {
            guest.inside.within(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, from)).unwrap();
                socket.send_to(&from.to_be_bytes(), (GATEWAY, 67)).unwrap();
            });
        };
        send(67);
        send(68);
        let mut message = [0; 16];
        let mut received = None;
        eventually("the second message", || {
            received = listener.recv(&mut message).ok();
            received.is_some()
        })
        .await;
        assert_eq!(message[..received.unwrap()], 68_u16.to_be_bytes(), "only the client's");
    });
}

/// A name server outside that knows one address for every name, over UDP and TCP.
fn oracle(outside: &crate::world::Namespace) -> impl Drop + use<> {
    use std::io::{Read, Write};
    fn answer(question: &[u8]) -> Vec<u8> {
        let mut answer = question.to_vec();
        // The question ends after its name, type and class; the rest, EDNS, is cut off.
        let mut end = 12;
        while question[end] != 0 {
            end += usize::from(question[end]) + 1;
        }
        answer.truncate(end + 5);
        answer[2] |= 0x80;
        answer[7] = 1;
        answer[10..12].copy_from_slice(&[0, 0]);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 5]);
        answer
    }
    struct Stop(std::sync::Arc<std::sync::atomic::AtomicBool>);
    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let stop = Stop(std::sync::Arc::default());
    let (udp, tcp) = outside.within(|| {
        let udp = UdpSocket::bind((OUTSIDE, 53)).unwrap();
        (udp, std::net::TcpListener::bind((OUTSIDE, 53)).unwrap())
    });
    udp.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    tcp.set_nonblocking(true).unwrap();
    let stopped = stop.0.clone();
    std::thread::spawn(move || {
        let mut question = [0; 1500];
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            if let Ok((length, from)) = udp.recv_from(&mut question) {
                udp.send_to(&answer(&question[..length]), from).unwrap();
            }
            if let Ok((mut stream, _)) = tcp.accept() {
                stream.set_nonblocking(false).unwrap();
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut question).unwrap();
                let answer = answer(&question);
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                stream.write_all(&[length.as_slice(), &answer].concat()).unwrap();
            }
        }
    });
    stop
}

async fn resolve(guest: &Guest, question: &str) -> String {
    let command = format!("netns exec {} busybox nslookup {question} {GATEWAY}", guest.inside.name);
    let running = tokio::process::Command::new("ip").args(command.split_whitespace()).output();
    let output = tokio::time::timeout(LIMIT, running).await.unwrap().unwrap();
    // Its first lines are the server that was asked.
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().skip(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn guests_resolve_each_other_and_outside_names() {
    in_world(async |world: World| {
        let outside = world.outside();
        let network = world.network(vec![port(2)]).await;
        let upstreams = Upstreams::Fixed(vec![SocketAddr::from((OUTSIDE, 53))]);
        let dns = Dns::start(&network, upstreams, &world.tasks).await.unwrap();
        dns.modify(|names| {
            names.own_zone("svc.example")?;
            names.insert("db.prod.svc.example", address(3))?;
            names.insert("DB", address(3))
        })
        .unwrap();
        let _oracle = oracle(&outside);
        let guest = Guest::configured(port(2));
        assert!(resolve(&guest, "db.prod.svc.example").await.contains("10.52.0.3"));
        assert!(resolve(&guest, "db").await.contains("10.52.0.3"));
        assert!(resolve(&guest, "absent.svc.example").await.contains("NXDOMAIN"));
        assert!(resolve(&guest, "10.52.0.3").await.contains("db.prod.svc.example"));
        assert!(resolve(&guest, "-type=a elsewhere.example").await.contains("203.0.113.5"));
        dns.modify(|names| names.remove(address(3)));
        assert!(!resolve(&guest, "db.prod.svc.example").await.contains("10.52.0.3"));
        // From outside the same address does not answer.
        let refused = outside.try_run(&format!("busybox nslookup db {GATEWAY}"));
        assert!(!refused.status.success());
    });
}

#[test]
fn questions_over_tcp_are_passed_on_over_tcp() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    in_world(async |world: World| {
        let outside = world.outside();
        let network = world.network(vec![port(2)]).await;
        let upstreams = Upstreams::Fixed(vec![SocketAddr::from((OUTSIDE, 53))]);
        let _dns = Dns::start(&network, upstreams, &world.tasks).await.unwrap();
        let _oracle = oracle(&outside);
        let guest = Guest::configured(port(2));
        let stream = guest.inside.within(|| std::net::TcpStream::connect((GATEWAY, 53)).unwrap());
        stream.set_nonblocking(true).unwrap();
        let mut stream = tokio::net::TcpStream::from_std(stream).unwrap();
        let question =
            b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04else\x00\x00\x01\x00\x01";
        for _ in 0..2 {
            stream.write_u16(question.len().try_into().unwrap()).await.unwrap();
            stream.write_all(question).await.unwrap();
            let reading = async {
                let length = stream.read_u16().await.unwrap();
                let mut answer = vec![0; usize::from(length)];
                stream.read_exact(&mut answer).await.unwrap();
                answer
            };
            let answer = tokio::time::timeout(LIMIT, reading).await.unwrap();
            assert_eq!(answer[answer.len() - 4..], [203, 0, 113, 5]);
        }
    });
}

#[test]
fn unreachable_upstreams_are_reported_as_a_failure() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2)]).await;
        let upstreams = Upstreams::Fixed(vec![]);
        let _dns = Dns::start(&network, upstreams, &world.tasks).await.unwrap();
        let guest = Guest::configured(port(2));
        assert!(resolve(&guest, "elsewhere.example").await.contains("SERVFAIL"));
    });
}
