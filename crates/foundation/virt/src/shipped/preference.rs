//! Preferences for guests of the usual operating systems.

use serde_json::{Value, json};

use super::{DOMAIN, RELEASE};

/// An operating system.
struct OperatingSystem {
    name: &'static str,
    title: &'static str,
    icon: &'static str,
    family: OsFamily,
    /// Its minimum requirements, if they are known: processors and memory.
    needs: Option<(u32, &'static str)>,
    extras: &'static [PreferenceExtra],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OsFamily {
    Linux,
    Windows,
}

/// Preferences of one system beyond those of its family.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PreferenceExtra {
    Efi,
    /// EFI whose variables outlive the guest.
    PersistentEfi,
    SecureBoot,
    Tpm,
    /// An I/O thread for each disk.
    IoThreads,
    Tablet,
    Cores,
    /// Paravirtual devices, for which drivers must be installed first.
    Virtio,
    Amd64,
}

use OsFamily::{Linux, Windows};
use PreferenceExtra::{
    Amd64, Cores, Efi, IoThreads, PersistentEfi, SecureBoot, Tablet, Tpm, Virtio,
};

const fn linux(
    name: &'static str,
    title: &'static str,
    icon: &'static str,
    needs: Option<(u32, &'static str)>,
    extras: &'static [PreferenceExtra],
) -> OperatingSystem {
    OperatingSystem { name, title, icon, family: Linux, needs, extras }
}

const fn windows(
    name: &'static str,
    title: &'static str,
    needs: (u32, &'static str),
    extras: &'static [PreferenceExtra],
) -> OperatingSystem {
    OperatingSystem {
        name,
        title,
        icon: "icon-windows",
        family: Windows,
        needs: Some(needs),
        extras,
    }
}

const ENTERPRISE: Option<(u32, &str)> = Some((1, "1.5Gi"));
const SERVER: (u32, &str) = (1, "2Gi");

const SYSTEMS: &[OperatingSystem] = &[
    linux("alpine", "Alpine", "icon-alpine", Some((1, "512Mi")), &[]),
    linux("centos.stream10", "CentOS Stream 10", "icon-centos", ENTERPRISE, &[IoThreads]),
    linux(
        "centos.stream10.desktop",
        "CentOS Stream 10",
        "icon-centos",
        ENTERPRISE,
        &[IoThreads, Tablet],
    ),
    linux("centos.stream9", "CentOS Stream 9", "icon-centos", ENTERPRISE, &[IoThreads]),
    linux(
        "centos.stream9.desktop",
        "CentOS Stream 9",
        "icon-centos",
        ENTERPRISE,
        &[IoThreads, Tablet],
    ),
    linux("cirros", "Cirros", "icon-cirros", Some((1, "256Mi")), &[]),
    linux("debian", "Debian", "icon-debian", Some((1, "512Mi")), &[Efi]),
    linux("fedora", "Fedora (amd64)", "icon-fedora", Some((1, "2Gi")), &[SecureBoot, Amd64]),
    linux("linux", "Linux Guest", "icon-linux", None, &[]),
    linux("linux.efi", "Linux EFI Guest", "icon-linux", None, &[Efi]),
    linux("opensuse.leap", "OpenSUSE Leap", "icon-opensuse-leap", Some((1, "2Gi")), &[]),
    linux(
        "opensuse.tumbleweed",
        "OpenSUSE Tumbleweed",
        "icon-opensuse-tumbleweed",
        Some((1, "2Gi")),
        &[],
    ),
    linux("oraclelinux", "Oracle Linux", "icon-oracle", Some((2, "4Gi")), &[Efi]),
    linux(
        "rhel.10",
        "Red Hat Enterprise Linux 10 (amd64)",
        "icon-rhel",
        ENTERPRISE,
        &[SecureBoot, IoThreads, Amd64],
    ),
    linux("rhel.8", "Red Hat Enterprise Linux 8", "icon-rhel", ENTERPRISE, &[]),
    linux(
        "rhel.9",
        "Red Hat Enterprise Linux 9 (amd64)",
        "icon-rhel",
        ENTERPRISE,
        &[SecureBoot, IoThreads, Amd64],
    ),
    linux("sles", "SUSE Linux Enterprise Server", "icon-sles", Some((1, "2Gi")), &[]),
    linux("ubuntu", "Ubuntu", "icon-ubuntu", Some((1, "2Gi")), &[]),
    windows("windows.10", "Microsoft Windows 10", SERVER, &[Cores, SecureBoot]),
    windows(
        "windows.11",
        "Microsoft Windows 11",
        (2, "4Gi"),
        &[Cores, PersistentEfi, Tpm, SecureBoot],
    ),
    windows("windows.2k16", "Microsoft Windows Server 2016", SERVER, &[SecureBoot]),
    windows("windows.2k19", "Microsoft Windows Server 2019", SERVER, &[SecureBoot]),
    windows(
        "windows.2k22",
        "Microsoft Windows Server 2022",
        SERVER,
        &[PersistentEfi, Tpm, SecureBoot],
    ),
    windows(
        "windows.2k25",
        "Microsoft Windows Server 2025",
        SERVER,
        &[PersistentEfi, Tpm, SecureBoot],
    ),
];

/// All of them; each Windows is there a second time, with paravirtual devices.
pub(super) fn objects() -> Vec<Value> {
    let both = |system: &OperatingSystem| {
        let mut objects = vec![system.object(system.name, system.title, system.extras)];
        if system.family == Windows {
            let name = format!("{}.virtio", system.name);
            let title = format!("{} (virtio)", system.title);
            let extras = [system.extras, &[Virtio]].concat();
            objects.push(system.object(&name, &title, &extras));
        }
        objects
    };
    SYSTEMS.iter().flat_map(both).collect()
}

impl OperatingSystem {
    fn object(&self, name: &str, title: &str, extras: &[PreferenceExtra]) -> Value {
        let kind = match self.family {
            Linux => "linux",
            Windows => "windows",
        };
        let mut labels = json!({});
        let mut set = |name: &str, value: &str| {
            labels[format!("{DOMAIN}/{name}")] = value.into();
        };
        set("vendor", "kubevirt.io");
        set("common-instancetypes-version", RELEASE);
        set("os-type", kind);
        let mut spec = match self.family {
            Linux => json!({"devices": {"preferredDiskBus": "virtio",
                "preferredInterfaceModel": "virtio", "preferredRng": {}}}),
            Windows => on_windows(),
        };
        spec["annotations"] = json!({"vm.kubevirt.io/os": kind});
        if let Some((processors, memory)) = self.needs {
            set("required-cpu", &processors.to_string());
            set("required-memory", memory);
            spec["requirements"] =
                json!({"cpu": {"guest": processors}, "memory": {"guest": memory}});
        }
        if extras.contains(&Amd64) {
            set("arch", "amd64");
            set("preferred-architecture", "amd64");
            set("required-architecture", "amd64");
        }
        for extra in extras {
            add(&mut spec, *extra);
        }
        json!({
            "apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachineClusterPreference",
            "metadata": {
                "name": name,
                "annotations": {
                    "iconClass": self.icon,
                    "openshift.io/display-name": title,
                    "openshift.io/provider-display-name": "KubeVirt",
                    "tags": format!("hidden,kubevirt,{kind}"),
                },
                "labels": labels,
            },
            "spec": spec,
        })
    }
}

fn add(spec: &mut Value, extra: PreferenceExtra) {
    match extra {
        Efi => spec["firmware"] = json!({"preferredEfi": {"secureBoot": false}}),
        PersistentEfi => {
            spec["firmware"] = json!({"preferredEfi": {"persistent": true, "secureBoot": false}});
        }
        SecureBoot => {
            spec["features"]["preferredSmm"] = json!({});
            spec["firmware"]["preferredEfi"]["secureBoot"] = true.into();
        }
        Tpm => spec["devices"]["preferredTPM"] = json!({"persistent": true}),
        IoThreads => spec["devices"]["preferredDiskDedicatedIoThread"] = true.into(),
        Tablet => {
            spec["devices"]["preferredAutoattachInputDevice"] = true.into();
            spec["devices"]["preferredInputBus"] = "virtio".into();
            spec["devices"]["preferredInputType"] = "tablet".into();
        }
        Cores => spec["cpu"] = json!({"preferredCPUTopology": "cores"}),
        Virtio => {
            spec["devices"]["preferredDiskBus"] = "virtio".into();
            spec["devices"]["preferredInterfaceModel"] = "virtio".into();
            spec["devices"]["preferredVideoType"] = "virtio".into();
            add(spec, Tablet);
        }
        Amd64 => {
            spec["preferredArchitecture"] = "amd64".into();
            spec["requirements"]["architecture"] = "amd64".into();
        }
    }
}

/// Enlightenments, clocks that Windows expects, devices that it has drivers for, and the time that
/// updates take when it shuts down.
fn on_windows() -> Value {
    json!({
        "clock": {
            "preferredClockOffset": {"utc": {}},
            "preferredTimer": {
                "hpet": {"present": false},
                "hyperv": {},
                "pit": {"tickPolicy": "delay"},
                "rtc": {"tickPolicy": "catchup"},
            },
        },
        "cpu": {"preferredCPUTopology": "sockets"},
        "devices": {
            "preferredAutoattachInputDevice": true,
            "preferredDiskBus": "sata",
            "preferredInterfaceModel": "e1000e",
        },
        "features": {
            "preferredAcpi": {},
            "preferredApic": {},
            "preferredHyperv": {
                "frequencies": {}, "ipi": {}, "reenlightenment": {}, "relaxed": {}, "reset": {},
                "runtime": {}, "spinlocks": {"spinlocks": 8191}, "synic": {},
                "synictimer": {"direct": {}}, "tlbflush": {}, "vapic": {}, "vpindex": {},
            },
        },
        "preferredTerminationGracePeriodSeconds": 3600,
    })
}
