//! The instance types and preferences that every cluster has, under the names, sizes and labels of
//! KubeVirt's common-instancetypes. Made from tables, since most of each object follows from its
//! series.

mod preference;

use serde_json::{Value, json};

/// The release of common-instancetypes whose names and sizes these are.
const RELEASE: &str = "v1.7.0";
const DOMAIN: &str = "instancetype.kubevirt.io";

/// All of them. They are created where they are missing when the server starts, as an operator
/// would, and otherwise belong to the administrator.
pub fn shipped_objects() -> Vec<Value> {
    let mut all: Vec<Value> = SERIES.iter().flat_map(InstancetypeSeries::objects).collect();
    all.extend(preference::objects());
    all
}

/// A name, processors, and memory.
type Size = (&'static str, u32, &'static str);

/// Instance types that differ in size only.
struct InstancetypeSeries {
    name: &'static str,
    class: &'static str,
    title: &'static str,
    about: &'static str,
    icon: &'static str,
    sizes: &'static [Size],
    /// Sizes of pages: those of a type, and what its name then ends with.
    pages: &'static [(&'static str, &'static str)],
    traits: &'static [Trait],
}

/// Properties that all types of a series share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trait {
    /// Processors of its own, and the emulator elsewhere.
    Dedicated,
    /// As many sockets as processors, so that none are kept for later.
    NoSpareSockets,
    Numa,
    Realtime,
    /// Half of the memory is not reserved.
    Overcommitted,
    IoThreads,
    /// Hints for container engines, which have no effect here.
    NoLoadBalancing,
}

const GENERAL: &[Size] = &[
    ("nano", 1, "512Mi"),
    ("micro", 1, "1Gi"),
    ("small", 1, "2Gi"),
    ("medium", 1, "4Gi"),
    ("2xmedium", 2, "4Gi"),
    ("large", 2, "8Gi"),
    ("xlarge", 4, "16Gi"),
    ("2xlarge", 8, "32Gi"),
    ("4xlarge", 16, "64Gi"),
    ("8xlarge", 32, "128Gi"),
];
const OVERCOMMITTED: &[Size] = &[
    ("nano", 1, "512Mi"),
    ("micro", 1, "1Gi"),
    ("small", 1, "2Gi"),
    ("medium", 1, "4Gi"),
    ("large", 2, "8Gi"),
    ("xlarge", 4, "16Gi"),
    ("2xlarge", 8, "32Gi"),
    ("4xlarge", 16, "64Gi"),
    ("8xlarge", 32, "128Gi"),
];
const COMPUTE: &[Size] = &[
    ("medium", 1, "2Gi"),
    ("large", 2, "4Gi"),
    ("xlarge", 4, "8Gi"),
    ("2xlarge", 8, "16Gi"),
    ("4xlarge", 16, "32Gi"),
    ("8xlarge", 32, "64Gi"),
];
const MEMORY: &[Size] = &[
    ("large", 2, "16Gi"),
    ("xlarge", 4, "32Gi"),
    ("2xlarge", 8, "64Gi"),
    ("4xlarge", 16, "128Gi"),
    ("8xlarge", 32, "256Gi"),
];
const NETWORK: &[Size] = &[
    ("medium", 4, "4Gi"),
    ("large", 4, "8Gi"),
    ("xlarge", 8, "16Gi"),
    ("2xlarge", 16, "32Gi"),
    ("4xlarge", 32, "64Gi"),
    ("8xlarge", 64, "128Gi"),
];

const SMALL_PAGES: &[(&str, &str)] = &[("", "")];
const LARGE_PAGES: &[(&str, &str)] = &[("2Mi", ""), ("1Gi", "1gi")];
const HUGE_PAGES: &[(&str, &str)] = &[("1Gi", "")];

const SERIES: &[InstancetypeSeries] = &[
    InstancetypeSeries {
        name: "cx1",
        class: "compute.exclusive",
        title: "Compute Exclusive",
        about: "Processors of their own, huge pages and the NUMA topology of the host.",
        icon: "pficon-registry",
        sizes: COMPUTE,
        pages: LARGE_PAGES,
        traits: &[Trait::Dedicated, Trait::NoSpareSockets, Trait::Numa, Trait::IoThreads],
    },
    InstancetypeSeries {
        name: "d1",
        class: "dedicated.vcpu",
        title: "Dedicated vCPU",
        about: "Processors of their own for general purposes.",
        icon: "pficon-server-group",
        sizes: GENERAL,
        pages: SMALL_PAGES,
        traits: &[Trait::Dedicated, Trait::IoThreads],
    },
    InstancetypeSeries {
        name: "m1",
        class: "memory.intensive",
        title: "Memory Intensive",
        about: "Much memory per processor, in huge pages.",
        icon: "fa-memory",
        sizes: MEMORY,
        pages: LARGE_PAGES,
        traits: &[],
    },
    InstancetypeSeries {
        name: "n1",
        class: "network",
        title: "Network",
        about: "Processors of their own and huge pages for packet processing with DPDK.",
        icon: "pficon-network",
        sizes: NETWORK,
        pages: HUGE_PAGES,
        traits: &[Trait::Dedicated, Trait::NoLoadBalancing],
    },
    InstancetypeSeries {
        name: "o1",
        class: "overcommitted",
        title: "Overcommitted",
        about: "As u1, but only half of the memory is reserved on the node.",
        icon: "pficon-virtual-machine",
        sizes: OVERCOMMITTED,
        pages: SMALL_PAGES,
        traits: &[Trait::Overcommitted],
    },
    InstancetypeSeries {
        name: "rt1",
        class: "realtime",
        title: "Realtime",
        about: "For realtime applications, on nodes that are set up for them.",
        icon: "pficon-server-group",
        // The smallest of the others is too small for these.
        sizes: OVERCOMMITTED.split_at(1).1,
        pages: HUGE_PAGES,
        traits: &[Trait::Dedicated, Trait::Numa, Trait::Realtime, Trait::NoLoadBalancing],
    },
    InstancetypeSeries {
        name: "u1",
        class: "general.purpose",
        title: "General Purpose",
        about: "Neutral proportions for general purposes; processors are shared with others.",
        icon: "pficon-server-group",
        sizes: GENERAL,
        pages: SMALL_PAGES,
        traits: &[],
    },
];

impl InstancetypeSeries {
    fn objects(&self) -> Vec<Value> {
        let of = |(page, ending): &(&str, &str)| -> Vec<Value> {
            self.sizes.iter().map(|size| self.object(*size, page, ending)).collect()
        };
        self.pages.iter().flat_map(of).collect()
    }

    fn has(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }

    fn object(&self, (size, processors, memory): Size, page: &str, ending: &str) -> Value {
        let size = format!("{size}{ending}");
        json!({
            "apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachineClusterInstancetype",
            "metadata": {
                "name": format!("{}.{size}", self.name),
                "annotations": {
                    format!("{DOMAIN}/displayName"): self.title,
                    format!("{DOMAIN}/description"): self.about,
                },
                "labels": self.labels(&size, processors, memory, page),
            },
            "spec": self.spec(processors, memory, page),
        })
    }

    fn labels(&self, size: &str, processors: u32, memory: &str, page: &str) -> Value {
        let mut labels = json!({});
        let mut set = |name: &str, value: &str| {
            labels[format!("{DOMAIN}/{name}")] = value.into();
        };
        set("vendor", "kubevirt.io");
        set("common-instancetypes-version", RELEASE);
        set("version", "1");
        set("class", self.class);
        set("icon-pf", self.icon);
        set("size", size);
        set("cpu", &processors.to_string());
        set("memory", memory);
        if !page.is_empty() {
            set("hugepages", page);
        }
        if self.has(Trait::Dedicated) {
            set("dedicatedCPUPlacement", "true");
            set("isolateEmulatorThread", "true");
        }
        if self.has(Trait::Numa) {
            set("numa", "true");
        }
        if self.has(Trait::Realtime) {
            set("realtime", "true");
        }
        labels
    }

    fn spec(&self, processors: u32, memory: &str, page: &str) -> Value {
        let mut spec = json!({"cpu": {"guest": processors}, "memory": {"guest": memory}});
        if !page.is_empty() {
            spec["memory"]["hugepages"] = json!({"pageSize": page});
        }
        for own in self.traits {
            match own {
                Trait::Dedicated => {
                    spec["cpu"]["dedicatedCPUPlacement"] = true.into();
                    spec["cpu"]["isolateEmulatorThread"] = true.into();
                }
                Trait::NoSpareSockets => spec["cpu"]["maxSockets"] = processors.into(),
                Trait::Numa => spec["cpu"]["numa"] = json!({"guestMappingPassthrough": {}}),
                Trait::Realtime => spec["cpu"]["realtime"] = json!({}),
                Trait::Overcommitted => spec["memory"]["overcommitPercent"] = 50.into(),
                Trait::IoThreads => spec["ioThreadsPolicy"] = "auto".into(),
                Trait::NoLoadBalancing => {
                    spec["annotations"] = json!({
                        "cpu-load-balancing.crio.io": "disable",
                        "cpu-quota.crio.io": "disable",
                        "irq-load-balancing.crio.io": "disable",
                    });
                }
            }
        }
        spec
    }
}

#[cfg(test)]
mod tests;
