//! The server, the storage process or both are killed at random moments, while an image
//! is imported and a volume is cloned, grown, attached and captured. Everything goes on by itself.

use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::lab::{self, CLAIMS, Lab, longhorn};
use crate::harness::{eventually, poll};
use crate::volume::web::{Fault, Web};

const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
const MIB: usize = 1 << 20;
/// After this many milliseconds everything that was asked for is done or nearly so.
const LATEST: u64 = 900;

/// The same moments for the same seed, which is printed.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let chosen = std::env::var("SHEAF_SEED").ok().and_then(|text| text.parse().ok());
        let seed: u64 = chosen.unwrap_or(407_704_133_295);
        eprintln!("kills with SHEAF_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

fn kill_storage(lab: &Lab) {
    // It may be between two lives.
    if let Some(process) = lab.node.storage() {
        let _ = kill_process(process, Signal::KILL);
    }
}

fn strike(lab: &mut Lab, dice: &mut Dice) -> &'static str {
    std::thread::sleep(Duration::from_millis(dice.below(LATEST)));
    let victim = dice.below(4);
    if victim != 0 {
        kill_storage(lab);
    }
    if victim != 1 {
        lab.node.sheaf.kill();
        if victim == 3 {
            kill_storage(lab);
        }
        lab.node.sheaf.begin();
    }
    ["the server", "the storage process", "both", "both, and storage twice"][victim as usize]
}

/// Volumes to work with, and an image to import.
pub(super) struct Work {
    web: Web,
    content: Vec<u8>,
    grown: String,
    size: u64,
}

impl Work {
    pub(super) fn prepare(lab: &mut Lab) -> Self {
        // Said of what was killed.
        for part in ["image cannot be imported", "cannot update image status"] {
            lab.node.sheaf.provokes(part);
        }
        let source = lab.claim("source", "32Mi");
        lab.want(&source, Some("one"));
        lab.until_served(&source);
        lab.io(&source, &["write -P 7 0 8M", "flush"]);
        lab.want(&source, None);
        lab.until_state(&source, "detached");
        let grown = lab.claim("grown", "16Mi");
        let web = Web::start();
        let content: Vec<u8> = (0..8 * MIB).map(|at| (at / 512 % 251) as u8 + 1).collect();
        web.put("image", content.clone(), Fault::None);
        Self { web, content, grown, size: 16 }
    }

    /// Asks for everything at once, lets something be killed, and waits until all is there.
    pub(super) fn round(&mut self, lab: &mut Lab, data: &str, number: u32) -> String {
        let mut dice = Dice(Dice::new().0.wrapping_mul(2 * u64::from(number) + 1));
        let (image, copy) = (format!("image-{number}"), format!("copy-{number}"));
        let snapshot = format!("snap-{number}");
        self.size += 8;
        self.ask(lab, data, &image, &copy, &snapshot);
        let mut victims = vec![strike(lab, &mut dice)];
        // A second kill interrupts the recovery from the first.
        if dice.below(2) == 0 {
            victims.push(strike(lab, &mut dice));
        }
        self.judge(lab, data, &image, &copy, &snapshot);
        victims.join(", then ")
    }

    fn ask(&self, lab: &Lab, data: &str, image: &str, copy: &str, snapshot: &str) {
        let http = lab.node.sheaf.http();
        let import = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
            "metadata": {"name": image}, "spec": {"displayName": image, "sourceType": "download",
                "url": self.web.url("image"), "retry": 0}});
        http.post(IMAGES, &import).ok();
        http.post(CLAIMS, &lab::clone_of(copy, "source", "32Mi")).ok();
        lab.grow("grown", &format!("{}Mi", self.size));
        lab.want(&self.grown, Some("one"));
        let capture = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Snapshot",
            "metadata": {"name": snapshot, "finalizers": ["longhorn.io"]},
            "spec": {"volume": data, "createSnapshot": true}});
        http.post(&longhorn("snapshots"), &capture).ok();
    }

    fn judge(&self, lab: &Lab, data: &str, image: &str, copy: &str, snapshot: &str) {
        let http = lab.node.sheaf.http();
        let taken = format!("{}/{snapshot}", longhorn("snapshots"));
        poll("the snapshot is taken", || {
            let found = http.get(&taken).json();
            if found["status"]["readyToUse"] == true { Ok(()) } else { Err(found.to_string()) }
        });
        let path = format!("{IMAGES}/{image}");
        let found = poll("the image is imported", || {
            let found = http.get(&path).json();
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = |own: &serde_json::Value| own["type"] == "Imported" && own["status"] == "True";
            if conditions.iter().any(is) { Ok(found) } else { Err(found.to_string()) }
        });
        let images = lab.node.sheaf.data().join("storage/disk/backing-images");
        let own = format!("vmi-{}", found["metadata"]["uid"].as_str().unwrap());
        let folders: Vec<_> = std::fs::read_dir(&images).unwrap().flatten().collect();
        let [folder] = folders.as_slice() else { panic!("more than one image: {folders:?}") };
        assert!(folder.file_name().to_string_lossy().starts_with(&own), "{folder:?}");
        let backing = std::fs::read(folder.path().join("backing")).unwrap();
        assert!(backing == self.content, "{image} differs");

        let volume = lab.until_bound(copy);
        lab.want(&volume, Some("one"));
        lab.until_served(&volume);
        lab.io(&volume, &["read -P 7 0 8M", "read -P 0 8M 24M"]);
        let capacity = format!("{}Mi", self.size);
        lab.node.until(&format!("{CLAIMS}/grown"), "/status/capacity/storage", &capacity);
        lab.until_served(&self.grown);
        let last = format!("{}M", self.size - 1);
        let (write, read) = (format!("write -P 3 {last} 1M"), format!("read -P 3 {last} 1M"));
        lab.io(&self.grown, &[&write, "flush", &read]);
        for own in [data, &self.grown, &volume] {
            lab.node.until(
                &format!("{}/{own}", longhorn("volumes")),
                "/status/robustness",
                "healthy",
            );
        }

        for own in [&self.grown, &volume] {
            lab.want(own, None);
            lab.until_state(own, "detached");
        }
        http.delete(&format!("{CLAIMS}/{copy}")).ok();
        http.delete(&taken).ok();
        http.delete(&path).ok();
        for gone in [&taken, &path, &format!("{CLAIMS}/{copy}")] {
            eventually(&format!("{gone} is gone"), || http.get(gone).status == 404);
        }
        let left = || std::fs::read_dir(&images).into_iter().flatten().count();
        eventually("nothing is left of the image", || left() == 0);
    }

    pub(super) fn remove(self, lab: &Lab) {
        for name in ["source", "grown"] {
            lab.node.sheaf.http().delete(&format!("{CLAIMS}/{name}")).ok();
        }
    }
}
