use std::collections::BTreeSet;

use super::*;

fn find(name: &str) -> Value {
    let mut found =
        shipped_objects().into_iter().filter(|object| object["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn names_are_unique_and_those_of_common_instancetypes() {
    let all = shipped_objects();
    let names: BTreeSet<_> =
        all.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect();
    assert_eq!(names.len(), all.len());
    let types = all.iter().filter(|each| each["kind"] == "VirtualMachineClusterInstancetype");
    assert_eq!(types.count(), 65);
    for name in ["u1.medium", "o1.nano", "cx1.2xlarge1gi", "m1.8xlarge", "n1.xlarge", "d1.2xmedium"]
    {
        assert!(names.contains(name), "{name}");
    }
    for name in ["fedora", "debian", "ubuntu", "windows.11.virtio", "rhel.9", "centos.stream9"] {
        assert!(names.contains(name), "{name}");
    }
    for name in ["rt1.nano", "o1.2xmedium", "windows.virtio"] {
        assert!(!names.contains(name), "{name}");
    }
}

#[test]
fn a_type_says_its_size_in_spec_and_labels() {
    let medium = find("u1.medium");
    assert_eq!(medium["spec"], json!({"cpu": {"guest": 1}, "memory": {"guest": "4Gi"}}));
    let labels = &medium["metadata"]["labels"];
    for (label, value) in [
        ("cpu", "1"),
        ("memory", "4Gi"),
        ("size", "medium"),
        ("class", "general.purpose"),
        ("vendor", "kubevirt.io"),
        ("version", "1"),
        ("common-instancetypes-version", RELEASE),
    ] {
        assert_eq!(labels[format!("{DOMAIN}/{label}")], value);
    }
    let exclusive = find("cx1.large1gi");
    let spec = json!({
        "cpu": {"guest": 2, "dedicatedCPUPlacement": true, "isolateEmulatorThread": true,
            "maxSockets": 2, "numa": {"guestMappingPassthrough": {}}},
        "memory": {"guest": "4Gi", "hugepages": {"pageSize": "1Gi"}},
        "ioThreadsPolicy": "auto",
    });
    assert_eq!(exclusive["spec"], spec);
    assert_eq!(find("o1.small")["spec"]["memory"]["overcommitPercent"], 50);
}

#[test]
fn a_preference_says_what_its_system_needs() {
    let windows = find("windows.11.virtio");
    assert_eq!(windows["spec"]["devices"]["preferredDiskBus"], "virtio");
    assert_eq!(windows["spec"]["cpu"]["preferredCPUTopology"], "cores");
    let efi = json!({"preferredEfi": {"persistent": true, "secureBoot": true}});
    assert_eq!(windows["spec"]["firmware"], efi);
    assert_eq!(windows["spec"]["requirements"]["memory"]["guest"], "4Gi");
    assert_eq!(find("windows.11")["spec"]["devices"]["preferredDiskBus"], "sata");
    let fedora = find("fedora");
    assert_eq!(fedora["spec"]["requirements"]["architecture"], "amd64");
    assert_eq!(fedora["metadata"]["labels"][format!("{DOMAIN}/required-memory")], "2Gi");
}
