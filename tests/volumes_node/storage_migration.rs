//! Disks of a running guest move to other claims: replicated and local ones, with the server
//! killed in the middle, canceled, and with a guest that dies.

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::lab::{self, CLAIMS, Lab, VMIS, VMS};
use crate::harness::{assemble, assert_has, eventually, poll};

const ACTIONS: &str = "/v1/harvester/kubevirt.io.virtualmachines/default/a?action=";
/// So much random data takes a moment to be copied.
const DATA: usize = 96 << 20;

/// A guest that counts on its disk, before data that must be the same at the end.
fn image() -> Vec<u8> {
    let mut image = assemble("migrate");
    image.resize(4096, 0);
    let mut number = 1_u64;
    while image.len() < DATA {
        // Marsaglia's xorshift.
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        image.extend(number.to_le_bytes());
    }
    image
}

struct Test {
    lab: Lab,
}

impl Test {
    fn vmi(&self) -> Value {
        self.lab.node.sheaf.http().get(&format!("{VMIS}/a")).json()
    }

    fn vm(&self) -> Value {
        self.lab.node.sheaf.http().get(&format!("{VMS}/a")).json()
    }

    fn condition(object: &Value, kind: &str) -> Value {
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|own| own["type"] == kind).unwrap_or_default()
    }

    /// Names another claim in the machine.
    fn ask_for(&self, claim: &str) {
        let volumes = json!([{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]);
        let patch = json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
        self.lab.node.sheaf.http().merge(&format!("{VMS}/a"), &patch).ok();
    }

    /// The claim that the node says the guest is on.
    fn claim(&self) -> String {
        let info = &self.vmi()["status"]["volumeStatus"][0]["persistentVolumeClaimInfo"];
        info["claimName"].as_str().unwrap_or_default().to_owned()
    }

    /// Asks for another claim, and does something while the disk is copied to it. If `act` says that
    /// it came too late, the disk moves back and all is repeated: a copy can be faster than a test.
    fn while_moving(&mut self, from: &str, to: &str, mut act: impl FnMut(&mut Self) -> bool) {
        for _ in 0..20 {
            self.ask_for(to);
            if self.until_moving_to(to) && act(self) {
                return;
            }
            self.until_on(to);
            self.ask_for(from);
            self.until_on(from);
        }
        panic!("each copy from {from} to {to} was over before anything could be done");
    }

    /// Waits until both objects say that the disk is copied; false if it is there already.
    fn until_moving_to(&self, claim: &str) -> bool {
        poll("a volume moves", || {
            let (vm, vmi) = (self.vm(), self.vmi());
            let state = &vm["status"]["volumeUpdateState"]["volumeMigrationState"];
            let moves = vmi["status"]["migratedVolumes"].is_array();
            if moves && state["migratedVolumes"].is_array() && Self::copies(&vmi) {
                return Ok(true);
            }
            if !moves && self.claim() == claim {
                return Ok(false);
            }
            Err(format!("{} {}", vm["status"], vmi["status"]))
        })
    }

    /// Whether the guest is on the old claim for certain.
    fn copies(vmi: &Value) -> bool {
        let condition = Self::condition(vmi, "VolumesChange");
        condition["status"] == "True" && condition["reason"] == "CopyingVolumes"
    }

    fn until_on(&self, claim: &str) {
        poll(&format!("the guest is on {claim}"), || {
            let (vm, vmi) = (self.vm(), self.vmi());
            let is_over = vmi["status"]["migratedVolumes"].is_null()
                && vm["status"]["volumeUpdateState"].is_null()
                && Self::condition(&vmi, "VolumesChange")["status"] != "True";
            let is_there = self.claim() == claim;
            if is_over && is_there { Ok(()) } else { Err(format!("{} {}", vm, vmi["status"])) }
        });
        assert!(!self.is_restart_required(), "{}", self.vm());
    }

    fn is_restart_required(&self) -> bool {
        Self::condition(&self.vm(), "RestartRequired")["status"] == "True"
    }

    /// The guest goes on to count, and was started once since it has its folder.
    fn goes_on(&self) {
        let lines = || self.lab.node.said().lines().count();
        let before = lines();
        eventually("the guest counts", || lines() > before + 5);
        let said = self.lab.node.said();
        assert!(!said.contains("BAD") && !said.contains("failed"), "{said}");
        assert_eq!(said.matches("boot").count(), 1, "{said}");
    }

    fn is_detached(&self, volume: &str) {
        self.lab.until_state(volume, "detached");
    }
}

#[test]
fn a_disk_moves_to_other_claims_while_its_guest_writes() {
    let mut lab = Lab::start();
    for part in ["volume migration failed", "volume migration cannot go on yet"] {
        lab.node.sheaf.provokes(part);
    }
    let root = lab.claim("root", "96Mi");
    let (new, back) = (lab.claim("new", "128Mi"), lab.claim("back", "160Mi"));
    let small = lab.claim("small", "16Mi");
    let mut local = lab::claim("local", "160Mi", "local");
    local["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    local["spec"]["volumeMode"] = json!("Filesystem");
    lab.node.sheaf.http().post(CLAIMS, &local).ok();
    let file = lab.node.sheaf.scratch("image");
    let content = image();
    std::fs::write(&file, &content).unwrap();
    lab.write_image(&root, &file);
    let machine = lab::machine("a", "root", "Always");
    lab.node.kubectl().apply(&machine);
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    let mut test = Test { lab };
    test.goes_on();

    // Without the strategy it waits for a restart, and a claim that is too small does as well.
    test.ask_for("new");
    eventually("a restart is required", || test.is_restart_required());
    let condition = Test::condition(&test.vm(), "RestartRequired");
    assert_has(condition.to_string(), "the volumes replacement is effective only after restart");
    test.ask_for("root");
    eventually("none is required", || !test.is_restart_required());
    let strategy = json!({"spec": {"updateVolumesStrategy": "Migration"}});
    test.lab.node.sheaf.http().merge(&format!("{VMS}/a"), &strategy).ok();
    test.ask_for("small");
    eventually("a restart is required", || test.is_restart_required());
    let condition = Test::condition(&test.vm(), "RestartRequired");
    assert_has(condition.to_string(), "claim small has 16Mi, less than the 96Mi of claim root");
    test.ask_for("root");
    eventually("none is required", || !test.is_restart_required());

    // Harvester's action; the new claim is larger, and the guest gets all of it.
    let http = test.lab.node.sheaf.http();
    let act = |action: &str, body: Value| http.post(&format!("{ACTIONS}{action}"), &body);
    assert_eq!(act("storageMigration", json!({"sourceVolume": "root"})).status, 422);
    let wrong = json!({"sourceVolume": "x", "targetVolume": "new"});
    assert_has(act("storageMigration", wrong).text(), "source volume x not found");
    let moved = act("storageMigration", json!({"sourceVolume": "root", "targetVolume": "new"}));
    assert_eq!(moved.status, 204, "{}", moved.text());
    test.until_on("new");
    test.goes_on();
    test.is_detached(&root);
    assert_eq!(test.vmi()["status"]["volumeStatus"][0]["size"], 128 << 20);
    assert_eq!(act("cancelStorageMigration", json!({})).status, 500);

    // The server is killed in the middle, and the next one finishes it.
    test.ask_for("local");
    test.until_moving_to("local");
    test.lab.node.sheaf.kill();
    test.lab.node.sheaf.begin();
    test.until_on("local");
    test.goes_on();
    test.is_detached(&new);

    // Canceled.
    let http = test.lab.node.sheaf.http();
    test.while_moving("local", "back", |_| {
        let canceled = http.post(&format!("{ACTIONS}cancelStorageMigration"), &json!({}));
        let is_late = canceled.text().contains("no active storage migration found");
        assert!(is_late || canceled.status == 204, "{}", canceled.text());
        !is_late
    });
    test.until_on("local");
    test.goes_on();
    test.is_detached(&back);

    // The guest dies in the middle: it starts from the claim that has everything, and moves.
    let processes = test.lab.node.processes();
    assert_eq!(processes.len(), 1);
    test.while_moving("local", "back", |test| {
        // One that dies while it is switched waits for a person: it is stopped first, which leaves
        // it where it is, and dies if that is before the switch.
        kill_process(processes[0], Signal::STOP).unwrap();
        let copies = Test::copies(&test.vmi());
        let sent = if copies { Signal::KILL } else { Signal::CONT };
        kill_process(processes[0], sent).unwrap();
        copies
    });
    eventually("it was started again", || {
        let now = test.lab.node.processes();
        now.len() == 1 && now != processes && test.lab.node.said().contains("boot")
    });
    test.until_on("back");
    test.goes_on();

    // The command creates the claim and waits.
    let sheaf = &test.lab.node.sheaf;
    let moved = sheaf.run("vm move-disk a --class harvester-longhorn --claim last");
    assert_has(moved, "disk root of a is on last now; `sheaf volume delete back`");
    test.until_on("last");
    test.goes_on();
    test.is_detached(&back);
    let last = http.get(&format!("{CLAIMS}/last")).ok();
    let last = last["spec"]["volumeName"].as_str().unwrap().to_owned();

    http.delete(&format!("{VMS}/a")).ok();
    test.lab.node.until_empty();
    test.is_detached(&last);
    test.lab.read_image(&last, &file);
    let copied = std::fs::read(&file).unwrap();
    let same = copied[..512] == content[..512] && copied[4096..content.len()] == content[4096..];
    assert!(same && copied.len() == 160 << 20, "the data differ");
    for name in ["root", "new", "back", "small", "local", "last"] {
        http.delete(&format!("{CLAIMS}/{name}")).ok();
    }
    drop(small);
    test.lab.until_nothing_is_left();
}
