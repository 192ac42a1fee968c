//! The server is killed at random moments while machines start, stop and change. Afterwards
//! everything is as the objects say, and nothing is left of what was begun.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Node, eventually, poll};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
/// The volume that is plugged in and out.
const EXTRA: &str = "extra";

/// Numbers that appear random and are the same for the same seed.
struct Dice(u64);

impl Dice {
    /// From the environment, or another one each time; printed, so that a run can be repeated.
    fn new() -> Self {
        let given = std::env::var("SHEAF_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        eprintln!("the same moments again: SHEAF_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The wanted state of a machine.
#[derive(Debug, Clone)]
struct Wish {
    runs: bool,
    plugged: bool,
    disk: PathBuf,
}

impl Wish {
    fn machine(&self, name: &str) -> Value {
        let (mut disks, mut volumes) = (
            vec![json!({"name": "root", "disk": {"bus": "virtio"}})],
            vec![json!({"name": "root", "hostDisk": {"path": self.disk, "type": "Disk"}})],
        );
        if self.plugged {
            disks.push(json!({"name": EXTRA, "disk": {"bus": "scsi"}, "serial": "EXTRA"}));
            let claim = json!({"claimName": claim(name), "hotpluggable": true});
            volumes.push(json!({"name": EXTRA, "persistentVolumeClaim": claim}));
        }
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {
                "runStrategy": if self.runs { "Always" } else { "Halted" },
                "template": {"spec": {
                    // Guests in the middle of their boot do not react to the button.
                    "terminationGracePeriodSeconds": 3,
                    "domain": {
                        "memory": {"guest": "16Mi"},
                        "devices": {
                            "disks": disks,
                            "interfaces": [{"name": "default", "masquerade": {}}],
                        },
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": volumes,
                }},
            },
        })
    }
}

fn claim(machine: &str) -> String {
    format!("{EXTRA}-{machine}")
}

fn at(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

struct Chaos {
    node: Node,
    dice: Dice,
    wishes: BTreeMap<String, Wish>,
    /// Every run that was ever seen: each must leave nothing.
    runs: BTreeSet<String>,
    /// The agent's files on disk without any machine.
    fresh: BTreeSet<PathBuf>,
}

impl Chaos {
    fn start(bridge: &str, network: &str) -> Self {
        let mut node = Node::networked(bridge, network);
        // Said of what was cut off in the middle, and of claims that are being made.
        node.sheaf.provokes("guest cannot be started yet");
        node.sheaf.provokes("cannot change a running machine");
        let mut wishes = BTreeMap::new();
        for name in ["a", "b", "c"] {
            let disk = node.disk(&format!("{name}.img"));
            wishes.insert(name.to_owned(), Wish { runs: false, plugged: false, disk });
        }
        let agent = node.sheaf.data().join("agent");
        eventually("the agent has started", || {
            ["boot", "agent.sock"].iter().all(|file| agent.join(file).exists())
        });
        let fresh = files(&agent);
        let chaos = Self { node, dice: Dice::new(), wishes, runs: BTreeSet::new(), fresh };
        for (name, wish) in &chaos.wishes {
            let http = chaos.node.sheaf.http();
            http.post(VMS, &wish.machine(name)).ok();
            let extra = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim(name)},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "local-immediate",
                    "resources": {"requests": {"storage": "1Mi"}},
                },
            });
            http.post(CLAIMS, &extra).ok();
        }
        for name in chaos.wishes.keys() {
            chaos.node.until(&at(CLAIMS, &claim(name)), "/status/phase", "Bound");
        }
        chaos
    }

    /// Asks for something else; acknowledged when this returns.
    fn disturb(&mut self) {
        let names: Vec<String> = self.wishes.keys().cloned().collect();
        let name = &names[self.dice.below(names.len() as u64) as usize];
        let http = self.node.sheaf.http();
        let wish = self.wishes.get_mut(name).unwrap();
        match self.dice.below(10) {
            0..5 => {
                wish.runs = !wish.runs;
                let strategy = if wish.runs { "Always" } else { "Halted" };
                http.merge(&at(VMS, name), &json!({"spec": {"runStrategy": strategy}})).ok();
            }
            5..8 => {
                wish.plugged = !wish.plugged;
                let spec = wish.machine(name)["spec"]["template"]["spec"].clone();
                let patch = json!({"spec": {"template": {"spec": {
                    "domain": {"devices": {"disks": spec["domain"]["devices"]["disks"]}},
                    "volumes": spec["volumes"],
                }}}});
                http.merge(&at(VMS, name), &patch).ok();
            }
            8 => {
                // A restart, as `virtctl restart` does it, or nothing if it does not run.
                http.delete(&at(VMIS, name));
            }
            _ => {
                let processes = self.node.processes();
                if !processes.is_empty() {
                    let one = self.dice.below(processes.len() as u64) as usize;
                    let _ = kill_process(processes[one], Signal::KILL);
                }
            }
        }
    }

    /// One or two kills at random moments after a change; answers how many.
    fn round(&mut self) -> usize {
        self.disturb();
        if self.dice.below(3) == 0 {
            self.disturb();
        }
        let moment = Duration::from_millis(self.dice.below(1200));
        std::thread::sleep(moment);
        self.node.sheaf.kill();
        self.nothing_runs_twice();
        let mut kills = 1;
        if self.dice.below(3) == 0 {
            // Once more, somewhere between its first instruction and its first seconds.
            let mut process = self.node.sheaf.spawn();
            std::thread::sleep(Duration::from_millis(self.dice.below(900)));
            process.kill().unwrap();
            process.wait().unwrap();
            self.nothing_runs_twice();
            kills += 1;
        }
        self.node.sheaf.begin();
        self.settle();
        kills
    }

    /// No two processes of one run, or on one disk.
    fn nothing_runs_twice(&mut self) {
        self.runs.extend(self.node.folders().iter().map(|folder| file_name(folder)));
        let mut disks = BTreeMap::<String, Pid>::new();
        let mut runs = BTreeMap::<String, Pid>::new();
        for process in self.node.processes() {
            let Some(words) = words(process) else { continue };
            for (name, wish) in &self.wishes {
                let path = wish.disk.display().to_string();
                if words.iter().any(|word| word.contains(&path)) {
                    let other = disks.insert(name.clone(), process);
                    assert_eq!(other, None, "{name} runs twice, the other is {process:?}");
                }
            }
            let run = run_of(&words);
            assert_eq!(runs.insert(run.clone(), process), None, "{run} runs twice");
        }
    }

    /// Waits until everything is as it is meant to be.
    #[track_caller]
    fn settle(&mut self) {
        let http = self.node.sheaf.http();
        let running = poll("machines are as their objects say", || {
            let list = http.get(VMIS).json();
            let vmis = list["items"].as_array().cloned().unwrap_or_default();
            self.complaint(&vmis).map_or(Ok(vmis), Err)
        });
        self.runs.extend(running.iter().map(|vmi| text(vmi, "/metadata/uid").to_owned()));
        self.nothing_runs_twice();
        eventually("nothing is left of runs that are over", || {
            let alive: BTreeSet<&str> =
                running.iter().map(|vmi| text(vmi, "/metadata/uid")).collect();
            self.runs.iter().filter(|run| !alive.contains(run.as_str())).all(|run| !has_group(run))
        });
    }

    /// The first difference from the wanted state.
    fn complaint(&self, vmis: &[Value]) -> Option<String> {
        let expected: Vec<&String> =
            self.wishes.iter().filter(|(_, wish)| wish.runs).map(|(name, _)| name).collect();
        let names: Vec<&str> = vmis.iter().map(|vmi| text(vmi, "/metadata/name")).collect();
        if names != expected {
            return Some(format!("instances {names:?} instead of {expected:?}"));
        }
        let mut uids: Vec<&str> = vmis.iter().map(|vmi| text(vmi, "/metadata/uid")).collect();
        uids.sort_unstable();
        let mut folders: Vec<String> = self.node.folders().iter().map(|it| file_name(it)).collect();
        folders.sort();
        let mut processes: Vec<String> =
            self.node.processes().into_iter().filter_map(words).map(|it| run_of(&it)).collect();
        processes.sort();
        if folders != uids || processes != uids {
            return Some(format!("{uids:?}: folders {folders:?}, processes {processes:?}"));
        }
        let (taps, ruled) = (self.node.taps(), self.node.ruled_taps());
        if taps.len() != uids.len() || ruled.len() != uids.len() {
            return Some(format!("{} machines: taps {taps:?}, rules of {ruled:?}", uids.len()));
        }
        vmis.iter().find_map(|vmi| self.complaint_of(vmi)).or_else(|| self.status_complaint())
    }

    fn complaint_of(&self, vmi: &Value) -> Option<String> {
        let (name, uid) = (text(vmi, "/metadata/name"), text(vmi, "/metadata/uid"));
        if text(vmi, "/status/phase") != "Running"
            || !vmi["metadata"]["deletionTimestamp"].is_null()
        {
            return Some(format!("{name} does not run: {vmi}"));
        }
        let plugged = self.wishes[name].plugged;
        let volumes = vmi["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
        let reported = volumes.iter().any(|volume| {
            volume["name"] == EXTRA && !volume["target"].as_str().unwrap_or_default().is_empty()
        });
        let folder = self.node.sheaf.data().join("agent/vmis").join(uid);
        let record = fs::read(folder.join("machine.json")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&record).unwrap_or_default();
        let disks = record["machine"]["disks"].as_array().cloned().unwrap_or_default();
        let recorded = disks.iter().any(|disk| disk["name"] == EXTRA);
        (reported != plugged || recorded != plugged).then(|| {
            format!("{name}: plugged {plugged}, reported {reported}, recorded {recorded}: {vmi}")
        })
    }

    fn status_complaint(&self) -> Option<String> {
        self.wishes.iter().find_map(|(name, wish)| {
            let vm = self.node.sheaf.http().get(&at(VMS, name)).json();
            let expected = if wish.runs { "Running" } else { "Stopped" };
            let status = text(&vm, "/status/printableStatus");
            (status != expected).then(|| format!("{name} is {status} instead of {expected}"))
        })
    }

    /// Removes all machines; nothing may be left of any run.
    fn finish(mut self) {
        let http = self.node.sheaf.http();
        for name in self.wishes.keys() {
            http.delete(&at(VMS, name)).ok();
            http.delete(&at(CLAIMS, &claim(name))).ok();
        }
        self.wishes.clear();
        self.node.until_empty();
        self.settle();
        let volumes = self.node.sheaf.data().join("volumes");
        eventually("no volume is left", || {
            let left = fs::read_dir(&volumes).unwrap().flatten();
            left.filter(|entry| file_name(&entry.path()).starts_with("pvc-")).count() == 0
        });
        poll("the agent has the files of a fresh one", || {
            let now = files(&self.node.sheaf.data().join("agent"));
            // Files of the node itself, which it may write after its first start.
            let is_own = |path: &&PathBuf| {
                ["probe.json", "host-network.lock"].iter().any(|name| path.ends_with(name))
            };
            let left: Vec<_> = now.difference(&self.fresh).filter(|path| !is_own(path)).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Everything below a folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files(&entry.path()));
        }
        found.insert(entry.path());
    }
    found
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The command line of a process, if it is still there.
fn words(process: Pid) -> Option<Vec<String>> {
    let line = fs::read(format!("/proc/{}/cmdline", process.as_raw_nonzero())).ok()?;
    let words = line.split(|byte| *byte == 0);
    Some(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// The run that a process belongs to, by the path of its pid file.
fn run_of(words: &[String]) -> String {
    let (_, rest) = words.iter().find_map(|word| word.split_once("agent/vmis/")).unwrap();
    rest.split('/').next().unwrap().to_owned()
}

/// Whether there is still a control group of a run.
fn has_group(run: &str) -> bool {
    let roots = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let mut groups = roots.map(|root| root.path().join("sheaf"));
    groups.any(|group| {
        let found = fs::read_dir(group).into_iter().flatten().flatten();
        found.into_iter().any(|entry| file_name(&entry.path()).contains(run))
    })
}

fn survives(mut chaos: Chaos, least: usize) {
    let mut kills = 0;
    while kills < least {
        kills += chaos.round();
    }
    eprintln!("{kills} kills, {} runs", chaos.runs.len());
    chaos.finish();
}

#[test]
fn machines_survive_the_death_of_the_server_at_random_moments() {
    survives(Chaos::start("chaosfew", "10.97.1.0/24"), 10);
}

#[test]
#[ignore = "takes minutes: make long-test"]
fn machines_survive_a_hundred_deaths_of_the_server() {
    survives(Chaos::start("chaosmany", "10.97.2.0/24"), 100);
}
