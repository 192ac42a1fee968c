//! The QEMU command line of a machine. Pure: it neither opens files nor reads the state of the host.
//!
//! The layout of the PCI bus is fixed by the order of this file, because guests name their
//! interfaces after it and a migration must find it again: every device that can be unplugged
//! is behind a root port of its own, interfaces first, so that the first one is `enp1s0` in
//! most Linux guests. `spare_ports` empty ports follow, called `hot0`, `hot1`, …. A machine that
//! migrates from another node gets the layout that it has there instead.
//!
//! QEMU gets its sockets from us as open file descriptors, so it needs no right to create
//! files in the machine's folder, and we can connect before it is up. Only the socket of VNC is
//! a path, in a folder of its own, since QEMU 7.2 accepts no descriptor for it.
//!
//! A guest that powers off stops the processors but not the process (`-action shutdown=pause`): a
//! power-off can be distinguished from a crash later, even if nothing watched the machine when it
//! happened.

mod board;
pub mod device;
pub mod disk;
mod line;
pub mod nic;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::machine::{Machine, Start};
pub use board::{GROWTH_BLOCK, GROWTH_DEVICE};
use line::Line;

/// Files that the launcher opened for a machine, and paths that QEMU is to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiring {
    /// An absolute path, by which a process is also recognised as that of this machine.
    pub pid_file: PathBuf,
    pub qmp: RawFd,
    pub serial: RawFd,
    pub guest_agent: RawFd,
    /// By the name of the interface.
    pub taps: BTreeMap<String, TapFds>,
    pub vnc: PathBuf,
    /// A connected socket, if the machine has a TPM.
    pub tpm: Option<RawFd>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TapFds {
    /// One for each queue.
    pub queues: Vec<RawFd>,
    /// As many as queues, or none.
    pub vhost: Vec<RawFd>,
}

/// The arguments for `qemu-system-x86_64`, without the program's name.
pub fn argv(machine: &Machine, wiring: &Wiring) -> Vec<OsString> {
    let mut line = Line::default();
    general(&mut line, machine, wiring);
    board::board(&mut line, machine);
    board::memory(&mut line, machine);
    board::firmware(&mut line, machine);
    if let Some(layout) = &machine.layout {
        line.lay_out(layout, machine.devices.spare_ports);
    }
    let nics = machine.nics.iter().filter_map(|nic| nic.pci_bus);
    line.reserve(nics.chain(machine.disks.iter().filter_map(|disk| disk.pci_bus)));
    for nic in &machine.nics {
        let fds = wiring.taps.get(&nic.name).cloned().unwrap_or_default();
        nic::plug(&mut line, nic, &fds);
    }
    disk::plug_all(&mut line, machine);
    device::plug_all(&mut line, machine, wiring);
    board::growth(&mut line, machine);
    line.spare_ports(machine.devices.spare_ports);
    line.finish()
}

fn general(line: &mut Line, machine: &Machine, wiring: &Wiring) {
    let name = line::escape(&machine.name);
    line.option("-name", format!("guest={name},debug-threads=on"));
    line.option("-uuid", &machine.uuid);
    line.option("-pidfile", wiring.pid_file.as_os_str());
    line.flag("-no-user-config");
    line.flag("-nodefaults");
    line.option("-display", "none");
    line.option(
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
    );
    // Every machine starts paused, until its console is read.
    line.flag("-S");
    let reboot = match machine.on_reboot {
        crate::machine::OnReboot::Reset => "reset",
        crate::machine::OnReboot::Shutdown => "shutdown",
    };
    let watchdog = machine.devices.watchdog.as_ref();
    let watchdog = watchdog.map_or("reset", |watchdog| watchdog.action.name());
    line.option("-action", format!("reboot={reboot},shutdown=pause,watchdog={watchdog}"));
    line.option("-chardev", format!("socket,id=qmp,fd={},server=on,wait=off", wiring.qmp));
    line.option("-mon", "chardev=qmp,id=monitor,mode=control");
    if machine.start == Start::Incoming {
        line.option("-incoming", "defer");
    }
}
