//! A node with replicated volumes, and the hands of a person at them.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Node, PASSWORD, assemble, poll};

pub(crate) const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub(crate) const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub(crate) const MACHINES: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines";
pub(crate) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

pub(crate) const DATA_VOLUMES: &str =
    "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes";

/// A disk of the guest, by its serial number.
pub(crate) const FIND: &str = "disk() { for d in /sys/block/*; do \
    [ \"$(cat $d/serial 2>/dev/null || dd if=$d/device/vpd_pg80 bs=1 skip=4 2>/dev/null)\" = $1 ] \
    && echo ${d##*/}; done; }";

pub(crate) fn longhorn(kind: &str) -> String {
    format!("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/{kind}")
}

/// A machine that boots from a claim.
pub(crate) fn machine(name: &str, claim: &str, strategy: &str) -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: {name}}}
spec:
  runStrategy: {strategy}
  template:
    spec:
      terminationGracePeriodSeconds: 5
      domain:
        memory: {{guest: 16Mi}}
        devices:
          disks: [{{name: root, disk: {{bus: virtio}}}}]
          interfaces: [{{name: default, masquerade: {{}}}}]
      networks: [{{name: default, pod: {{}}}}]
      volumes: [{{name: root, persistentVolumeClaim: {{claimName: {claim}}}}}]
"
    )
}

/// A Linux whose root is a file and whose data is in the claim `data`.
pub(crate) fn linux(root: &Path) -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: a}}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 5
      domain:
        memory: {{guest: 256Mi}}
        devices:
          disks:
          - {{name: root, disk: {{bus: virtio}}}}
          - {{name: data, disk: {{bus: virtio}}, serial: DATA}}
          - {{name: seed, disk: {{bus: virtio}}}}
          interfaces: [{{name: default, masquerade: {{}}}}]
      networks: [{{name: default, pod: {{}}}}]
      volumes:
      - {{name: root, hostDisk: {{path: {root}, type: Disk}}}}
      - {{name: data, persistentVolumeClaim: {{claimName: data}}}}
      - name: seed
        cloudInitNoCloud: {{userData: \"#cloud-config\\npassword: {PASSWORD}\\n\"}}
",
        root = root.display()
    )
}

pub(crate) fn claim(name: &str, size: &str, class: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteMany"],
            "volumeMode": "Block", "resources": {"requests": {"storage": size}}}})
}

pub(crate) fn clone_of(name: &str, source: &str, size: &str) -> Value {
    let mut claim = claim(name, size, "harvester-longhorn");
    claim["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": source});
    claim
}

pub(crate) fn data_volume(name: &str, source: &Value) -> Value {
    json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": name},
        "spec": {"source": source, "storage": {"storageClassName": "harvester-longhorn",
            "volumeMode": "Block", "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "16Mi"}}}}})
}

/// A class whose volumes are encrypted, and its secret.
pub(crate) fn encrypted_class(name: &str, passphrase: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: crypto, namespace: longhorn-system}}
stringData:
  CRYPTO_KEY_VALUE: {passphrase}
  CRYPTO_KEY_PROVIDER: secret
  CRYPTO_KEY_CIPHER: aes-xts-plain64
  CRYPTO_KEY_HASH: sha256
  CRYPTO_KEY_SIZE: '256'
  CRYPTO_PBKDF: argon2i
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: {name}}}
provisioner: driver.longhorn.io
allowVolumeExpansion: true
parameters:
  numberOfReplicas: \"1\"
  encrypted: \"true\"
  csi.storage.k8s.io/provisioner-secret-name: crypto
  csi.storage.k8s.io/provisioner-secret-namespace: longhorn-system
  csi.storage.k8s.io/node-publish-secret-name: crypto
  csi.storage.k8s.io/node-publish-secret-namespace: longhorn-system
  csi.storage.k8s.io/node-stage-secret-name: crypto
  csi.storage.k8s.io/node-stage-secret-namespace: longhorn-system
"
    )
}

pub(crate) struct Lab {
    pub(crate) node: Node,
}

impl Lab {
    pub(crate) fn start() -> Self {
        Self::on(Node::start())
    }

    pub(crate) fn on(mut node: Node) -> Self {
        // Said of what was killed.
        for part in [
            "storage process exited",
            "storage process is no longer monitored",
            "cannot get volume record",
        ] {
            node.sheaf.provokes(part);
        }
        let lab = Self { node };
        let setting = format!("{}/storage-minimal-available-percentage", longhorn("settings"));
        poll("settings can be changed", || {
            let reply = lab.node.sheaf.http().merge(&setting, &json!({"value": "0"}));
            if reply.status < 300 { Ok(()) } else { Err(reply.text()) }
        });
        lab.use_disk_of("one");
        lab
    }

    /// Tests run where disks are nearly full: all of this node's may be used.
    pub(crate) fn use_disk_of(&self, name: &str) {
        let lab = self;
        let node = format!("{}/{name}", longhorn("nodes"));
        let unreserved = json!({"spec": {"disks": {"default-disk": {"storageReserved": 0}}}});
        poll("the node has its disk", || {
            let found = lab.node.sheaf.http().get(&node);
            let disk = found.json()["status"]["diskStatus"]["default-disk"].clone();
            match disk["diskUUID"].as_str() {
                Some(uuid) if !uuid.is_empty() => Ok(()),
                _ => Err(found.text()),
            }
        });
        lab.node.sheaf.http().merge(&node, &unreserved).ok();
    }

    /// A claim that is bound; answers the name of its volume.
    #[track_caller]
    pub(crate) fn claim(&self, name: &str, size: &str) -> String {
        self.claim_of(name, size, "harvester-longhorn")
    }

    #[track_caller]
    pub(crate) fn claim_of(&self, name: &str, size: &str, class: &str) -> String {
        self.node.sheaf.http().post(CLAIMS, &claim(name, size, class)).ok();
        self.until_bound(name)
    }

    #[track_caller]
    pub(crate) fn until_bound(&self, name: &str) -> String {
        let claim = self.node.until(&format!("{CLAIMS}/{name}"), "/status/phase", "Bound");
        claim["spec"]["volumeName"].as_str().unwrap().to_owned()
    }

    pub(crate) fn encrypted_class(&self, name: &str, passphrase: &str) {
        self.node.kubectl().apply(&encrypted_class(name, passphrase));
    }

    pub(crate) fn grow(&self, claim: &str, size: &str) {
        let larger = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        self.node.sheaf.http().merge(&format!("{CLAIMS}/{claim}"), &larger).ok();
    }

    /// Asks for a volume on a node, or no longer does so.
    pub(crate) fn want(&self, volume: &str, node: Option<&str>) {
        let ticket = node.map(|node| json!({"id": "t", "type": "csi-attacher", "nodeID": node}));
        let patch = json!({"spec": {"attachmentTickets": {"t": ticket}}});
        let path = format!("{}/{volume}", longhorn("volumeattachments"));
        // It comes with the volume, but after it.
        poll(&format!("{volume} can be asked for"), || {
            let reply = self.node.sheaf.http().merge(&path, &patch);
            if reply.status == 404 { Err(reply.text()) } else { Ok(reply.ok()) }
        });
    }

    #[track_caller]
    pub(crate) fn until_state(&self, volume: &str, state: &str) {
        self.node.until(&format!("{}/{volume}", longhorn("volumes")), "/status/state", state);
    }

    pub(crate) fn socket(&self, volume: &str) -> PathBuf {
        let engine = self.node.sheaf.http().get(&format!("{}/{volume}-e-0", longhorn("engines")));
        let endpoint = engine.ok()["status"]["endpoint"].as_str().unwrap_or_default().to_owned();
        endpoint.trim_start_matches("unix://").into()
    }

    /// Waits until clients can connect.
    #[track_caller]
    pub(crate) fn until_served(&self, volume: &str) {
        let path = format!("{}/{volume}-e-0", longhorn("engines"));
        poll(&format!("{volume} is served"), || {
            let engine = self.node.sheaf.http().get(&path).json();
            let running = engine["status"]["currentState"] == "running";
            let socket = engine["status"]["endpoint"].as_str().unwrap_or_default();
            let socket = socket.trim_start_matches("unix://");
            let answers = std::os::unix::net::UnixStream::connect(socket).is_ok();
            if running && answers { Ok(()) } else { Err(engine.to_string()) }
        });
    }

    /// Reads and writes, as a client of the volume would.
    #[track_caller]
    pub(crate) fn io(&self, volume: &str, commands: &[&str]) {
        // A volume that was just served may be on its way again.
        let output = poll("a client can connect", || {
            let uri = format!("nbd+unix:///?socket={}", self.socket(volume).display());
            let mut tool = Command::new("qemu-io");
            tool.args(["-f", "raw", &uri]);
            for command in commands {
                tool.args(["-c", command]);
            }
            let output = tool.output().expect("qemu-io is installed");
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            if complaint.contains("can't open device") { Err(complaint) } else { Ok(output) }
        });
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = !output.status.success() || said.contains("failed");
        assert!(!failed, "{commands:?}: {said} {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The guest of one sector in a file.
    fn pulse(&self) -> PathBuf {
        let image = self.node.sheaf.scratch("pulse.img");
        let mut content = assemble("pulse");
        content.resize(1 << 20, 0);
        std::fs::write(&image, content).unwrap();
        image
    }

    /// The same as people offer images.
    pub(crate) fn pulse_qcow2(&self) -> Vec<u8> {
        let (raw, image) = (self.pulse(), self.node.sheaf.scratch("pulse.qcow2"));
        let mut tool = Command::new("qemu-img");
        tool.args(["convert", "-f", "raw", "-O", "qcow2"]).arg(&raw).arg(&image);
        assert!(tool.status().expect("qemu-img is installed").success());
        std::fs::read(image).unwrap()
    }

    /// Puts the guest of one sector onto a volume.
    pub(crate) fn write_pulse(&self, volume: &str) {
        self.write_image(volume, &self.pulse());
    }

    /// Puts what is in a file onto a volume.
    pub(crate) fn write_image(&self, volume: &str, image: &Path) {
        self.with_uri(volume, |tool, uri| tool.args(["convert", "-n"]).arg(image).arg(uri));
    }

    /// Puts what is on a volume into a file.
    pub(crate) fn read_image(&self, volume: &str, image: &Path) {
        self.with_uri(volume, |tool, uri| tool.args(["convert"]).arg(uri).arg(image));
    }

    /// Runs qemu-img on a volume without users.
    fn with_uri<'a>(
        &self,
        volume: &str,
        fill: impl for<'t> FnOnce(&'t mut Command, &str) -> &'t mut Command + 'a,
    ) {
        self.want(volume, Some("one"));
        self.until_served(volume);
        let uri = format!("nbd+unix:///?socket={}", self.socket(volume).display());
        let mut tool = Command::new("qemu-img");
        let status = fill(&mut tool, &uri).args(["-f", "raw", "-O", "raw"]).status();
        assert!(status.expect("qemu-img is installed").success());
        self.want(volume, None);
        self.until_state(volume, "detached");
    }

    /// Waits until a guest's agent is connected.
    #[track_caller]
    pub(crate) fn until_agent_answers(&self, name: &str) {
        poll("the guest's agent answers", || {
            let vmi = self.node.sheaf.http().get(&format!("{VMIS}/{name}")).ok();
            let conditions = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = |own: &Value| own["type"] == "AgentConnected" && own["status"] == "True";
            if conditions.iter().any(is) { Ok(()) } else { Err(vmi.to_string()) }
        });
    }

    /// Kills the storage process and waits for another.
    #[track_caller]
    pub(crate) fn kill_storage(&self) {
        let before = self.node.storage().expect("a storage process runs");
        kill_process(before, Signal::KILL).unwrap();
        poll("another storage process runs", || match self.node.storage() {
            Some(now) if now != before => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// How many files the storage process has open.
    pub(crate) fn open_files(&self) -> usize {
        let pid = self.node.storage().expect("a storage process runs");
        std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count()
    }

    /// Waits until no object, no file and no socket of a volume is left.
    #[track_caller]
    pub(crate) fn until_nothing_is_left(&self) {
        let http = self.node.sheaf.http();
        for kind in ["volumes", "engines", "replicas", "snapshots", "volumeattachments"] {
            poll(&format!("no {kind} are left"), || {
                let all = http.get(&longhorn(kind)).ok()["items"].as_array().cloned().unwrap();
                if all.is_empty() { Ok(()) } else { Err(json!(all).to_string()) }
            });
        }
        let storage = self.node.sheaf.data().join("storage");
        for dir in ["nbd", "disk/replicas", "replicas", "records"] {
            poll(&format!("nothing is left in {dir}"), || {
                let entries = std::fs::read_dir(storage.join(dir)).into_iter().flatten().flatten();
                let left: Vec<_> = entries.map(|entry| entry.path()).collect();
                if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
            });
        }
    }
}
