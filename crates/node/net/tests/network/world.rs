//! A host, its guests and the world outside, each a network namespace.
//!
//! A guest is a tap in a namespace of its own, and a thread that carries frames between it and the
//! host's tap: to the host it appears as a QEMU.

use std::fs::File;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::Tasks;
use net::{
    Attachment, Bridge, DesiredNetwork, InboundPolicy, LinkName, Mac, Network, Port, Protocol,
    Queues, open_tap,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Long enough for a loaded machine; reaching it is a failure.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// Long enough for a lost packet to be sent again twice.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 1);
/// The host's address on the wire to the outside, and the address of who is there.
pub(crate) const HOST_OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Runs `test` on a thread that lives in a fresh namespace, the host's.
pub(crate) fn in_world<Test: Future<Output = ()>>(test: impl FnOnce(World) -> Test + Send) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes network namespaces: run as root"
    );
    let host = Namespace::new("host");
    std::thread::scope(|scope| {
        let run = || {
            host.enter();
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let world = World { tasks: Tasks::default() };
                let tasks = world.tasks.clone();
                test(world).await;
                tasks.stop(Duration::from_secs(2)).await;
            });
        };
        if let Err(panic) = scope.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// As [`in_world`], with and without `br_netfilter`, which sends frames between the ports of a
/// bridge through the rules for forwarded packets. A host that lacks it is one without.
pub(crate) fn in_both_worlds<Test: Future<Output = ()>>(
    test: impl Fn(World) -> Test + Send + Sync,
) {
    let switch = Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables");
    let settings: &[&str] = if switch.exists() { &["0", "1"] } else { &[""] };
    for setting in settings {
        in_world(async |world| {
            if !setting.is_empty() {
                std::fs::write(switch, setting).unwrap();
            }
            test(world).await;
        });
    }
}

pub(crate) struct World {
    pub(crate) tasks: Tasks,
}

impl World {
    pub(crate) async fn network(&self, ports: Vec<Port>) -> Network {
        Network::start(DesiredNetwork::new(bridge(), ports), &self.tasks).await.unwrap()
    }

    /// A station beyond the host with routes to the guests.
    pub(crate) fn outside(&self) -> Namespace {
        let outside = Namespace::new("out");
        run(&format!("ip link add up0 type veth peer name eth0 netns {}", outside.name));
        run(&format!("ip address add {HOST_OUTSIDE}/24 dev up0"));
        run("ip link set up0 up");
        outside.run(&format!("ip address add {OUTSIDE}/24 dev eth0"));
        outside.run("ip link set lo up");
        outside.run("ip link set eth0 up");
        outside.run(&format!("ip route add 10.52.0.0/24 via {HOST_OUTSIDE}"));
        outside
    }

    /// Stops a network's tasks, as if the process ended.
    pub(crate) async fn restart(&mut self) {
        std::mem::take(&mut self.tasks).stop(Duration::from_secs(2)).await;
    }
}

pub(crate) fn bridge() -> Bridge {
    let mut bridge = Bridge::new("10.52.0.1/24".parse().unwrap());
    bridge.host_tcp.insert(6443);
    bridge
}

/// The port of guest number `number`, which decides its addresses.
pub(crate) fn port(number: u8) -> Port {
    Port {
        tap: format!("shf-{number}").parse().unwrap(),
        mac: Mac::new([2, 0, 0, 0, 0, number]),
        owner: 1234,
        queues: Queues::Single,
        attachment: Attachment::Nat { address: address(number), inbound: InboundPolicy::All },
    }
}

pub(crate) fn closed_but(number: u8, open: &[(Protocol, u16)]) -> Port {
    let inbound = InboundPolicy::Only(open.iter().copied().collect());
    Port { attachment: Attachment::Nat { address: address(number), inbound }, ..port(number) }
}

pub(crate) fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 52, 0, number)
}

/// A network namespace that goes with its owner.
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    pub(crate) fn new(what: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("shft-{}-{count}-{what}", std::process::id());
        run(&format!("ip netns add {name}"));
        let namespace = Self { name };
        namespace.run("ip link set lo up");
        namespace
    }

    /// Moves the calling thread.
    pub(crate) fn enter(&self) {
        let namespace = File::open(format!("/run/netns/{}", self.name)).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// Does something on a thread in here.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                work()
            });
            inside.join().unwrap()
        })
    }

    pub(crate) fn try_run(&self, command: &str) -> Output {
        output(&format!("ip netns exec {} {command}", self.name))
    }

    pub(crate) fn run(&self, command: &str) -> String {
        succeed(command, &self.try_run(command))
    }

    /// Whether a ping is answered, be it the third.
    pub(crate) fn reaches(&self, to: Ipv4Addr) -> bool {
        (0..3).any(|_| self.try_run(&format!("busybox ping -c 1 -W 3 {to}")).status.success())
    }

    /// Whether a single ping is answered at once.
    pub(crate) fn pings(&self, to: Ipv4Addr) -> bool {
        self.try_run(&format!("busybox ping -c 1 -W 1 {to}")).status.success()
    }

    pub(crate) fn connects(&self, to: Ipv4Addr, port: u16) -> bool {
        self.connect(SocketAddr::from((to, port))).is_ok()
    }

    pub(crate) fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        self.within(|| TcpStream::connect_timeout(&to, CONNECT_TIMEOUT))
    }

    /// Listens in here; the kernel answers connections from now on.
    pub(crate) fn listen(&self, port: u16) -> TcpListener {
        self.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).output();
    }
}

/// A guest behind a tap of the host.
pub(crate) struct Guest {
    pub(crate) inside: Namespace,
    pub(crate) port: Port,
    stop: Arc<AtomicBool>,
    wire: Option<JoinHandle<()>>,
}

/// Opens a tap that nothing else holds any more: the kernel releases one a moment after its
/// descriptor was closed.
fn open_free_tap(name: &LinkName, queues: Queues) -> OwnedFd {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match open_tap(name, queues, 1) {
            Ok(mut opened) => return opened.remove(0),
            Err(failure) if failure.raw_os_error() == Some(16) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(failure) => panic!("cannot open {name}: {failure}"),
        }
    }
}

impl Guest {
    /// Plugs a guest without an address into the tap of `port`, which exists.
    pub(crate) fn plug(port: Port) -> Self {
        let inside = Namespace::new("guest");
        inside.run("ip tuntap add dev eth0 mode tap");
        inside.run(&format!("ip link set eth0 address {}", port.mac));
        inside.run("ip link set eth0 up");
        let stop = Arc::new(AtomicBool::new(false));
        let mut guest = Self { inside, port, stop, wire: None };
        guest.replug();
        guest
    }

    /// Plugs a guest into the tap of its port in the namespace of the calling thread.
    pub(crate) fn replug(&mut self) {
        let theirs: LinkName = "eth0".parse().unwrap();
        let theirs = self.inside.within(|| open_free_tap(&theirs, Queues::Single));
        let ours = open_free_tap(&self.port.tap, self.port.queues);
        let stopped = self.stop.clone();
        self.wire = Some(std::thread::spawn(move || carry(&[ours, theirs], &stopped)));
    }

    /// Pulls the cable.
    pub(crate) fn unplug(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(wire) = self.wire.take() {
            let _ = wire.join();
        }
        self.stop.store(false, Ordering::Relaxed);
    }

    /// As [`Guest::plug`], configured by hand.
    pub(crate) fn configured(port: Port) -> Self {
        let guest = Self::plug(port);
        guest.configure(guest.address());
        guest
    }

    pub(crate) fn configure(&self, address: Ipv4Addr) {
        self.inside.run(&format!("ip address replace {address}/24 dev eth0"));
        self.inside.run(&format!("ip route replace default via {GATEWAY}"));
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.port.address().expect("a guest of the NAT network")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.unplug();
    }
}

fn carry(ends: &[OwnedFd; 2], stop: &AtomicBool) {
    let mut frame = vec![0; 70_000];
    while !stop.load(Ordering::Relaxed) {
        let mut ready = [0, 1].map(|end: usize| PollFd::new(&ends[end], PollFlags::IN));
        let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if poll(&mut ready, Some(&pause)).is_err() {
            continue;
        }
        let has_frame = ready.map(|end| end.revents().contains(PollFlags::IN));
        for end in [0, 1] {
            // A tap that is gone or down fails; the guest has then lost its cable.
            if has_frame[end]
                && let Ok(length) = rustix::io::read(&ends[end], &mut frame)
            {
                let _ = rustix::io::write(&ends[1 - end], &frame[..length]);
            }
        }
    }
}

fn output(command: &str) -> Output {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap();
    let ran = Command::new(program).args(words).output();
    ran.unwrap_or_else(|error| panic!("cannot run {program}, which this test needs: {error}"))
}

fn succeed(command: &str, output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command in the namespace of the calling thread.
pub(crate) fn run(command: &str) -> String {
    succeed(command, &output(command))
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
