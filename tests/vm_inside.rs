//! More of what only the inside of a guest shows: probes that its programs answer, a watchdog
//! that bites, small disks with data, sizes of blocks, errors, and what does not outlive a run.

use serde_json::{Value, json};

use crate::harness::{FIND, Node, PASSWORD, Shell, Small, disk_of_image, eventually, poll};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/a";
const VMI: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";

fn machine(node: &Node, small: &Small) -> String {
    let (root, full) = (node.sheaf.scratch("root.img"), small.path.join("full.img"));
    disk_of_image(&root);
    std::fs::File::create(&full).unwrap().set_len(32 << 20).unwrap();
    format!(
        "
apiVersion: v1
kind: ConfigMap
metadata: {{name: answers}}
data: {{autounattend.xml: <answers/>, other.xml: <other/>}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: base}}
spec: {{storageClassName: local, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 4Mi}}}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: raw}}
spec: {{storageClassName: local, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 8Mi}}}}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: a}}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 0
      readinessProbe:
        httpGet: {{port: 8080, path: /health, httpHeaders: [{{name: X-Probe, value: me}}]}}
        periodSeconds: 1
        timeoutSeconds: 10
        failureThreshold: 1
      domain:
        memory: {{guest: 256Mi}}
        devices:
          watchdog: {{name: dog, i6300esb: {{action: poweroff}}}}
          disks:
          - {{name: root, disk: {{bus: virtio}}}}
          - {{name: seed, disk: {{bus: virtio}}}}
          - {{name: answers, cdrom: {{bus: scsi}}}}
          - {{name: passing, disk: {{bus: virtio}}, serial: PASSING}}
          - {{name: raw, lun: {{bus: scsi}}, serial: RAW}}
          - name: blocks
            disk: {{bus: virtio}}
            serial: BLOCKS
            blockSize: {{custom: {{logical: 4096, physical: 4096}}}}
          - {{name: full, disk: {{bus: virtio}}, serial: FULL, errorPolicy: report}}
          interfaces: [{{name: default, masquerade: {{}}}}]
      networks: [{{name: default, pod: {{}}}}]
      volumes:
      - {{name: root, hostDisk: {{path: {root}, type: Disk}}}}
      - name: seed
        cloudInitNoCloud: {{userData: \"#cloud-config\\npassword: {PASSWORD}\\n\"}}
      - {{name: answers, sysprep: {{configMap: {{name: answers}}}}}}
      - {{name: passing, ephemeral: {{persistentVolumeClaim: {{claimName: base}}}}}}
      - {{name: raw, persistentVolumeClaim: {{claimName: raw}}}}
      - {{name: blocks, emptyDisk: {{capacity: 8Mi}}}}
      - {{name: full, hostDisk: {{path: {full}, type: Disk}}}}
",
        root = root.display(),
        full = full.display(),
    )
}

/// Starts the watchdog for one second, and does not think of it again. Kernels for clouds have
/// no driver for it: its registers are written by hand. It is unlocked for each of its two
/// timers, enabled, and started.
const NEGLECT: [&str; 6] = [
    "d=$(dirname $(grep -l 0x25ab /sys/bus/pci/devices/*/device))",
    "[ ! -e $d/driver ] || echo ${d##*/} >$d/driver/unbind; echo 1 >$d/enable",
    "b=$(head -n 1 $d/resource | cut -d ' ' -f 1)",
    "for t in 0 4; do for v in 0x80 0x86; do devmem $((b + 12)) 16 $v; done; \
     devmem $((b + t)) 32 500; done",
    "printf '\\0\\0' | dd of=$d/config bs=2 seek=48 conv=notrunc 2>/dev/null",
    "printf '\\2' | dd of=$d/config bs=1 seek=104 conv=notrunc 2>/dev/null",
];

struct Test {
    shell: Shell,
    /// Unmounted before the node's folder goes.
    _small: Small,
    node: Node,
}

impl Test {
    fn begin() -> Self {
        let node = Node::start();
        let small = Small::mount(node.sheaf.scratch("small"));
        node.kubectl().apply(&machine(&node, &small));
        node.until(VMI, "/status/phase", "Running");
        let shell = Shell::login(&node, "a");
        Self { shell, _small: small, node }
    }

    fn vmi(&self) -> Value {
        self.node.sheaf.http().get(VMI).json()
    }

    #[track_caller]
    fn until_ready(&self, status: &str) {
        poll(&format!("readiness is {status}"), || {
            let vmi = self.vmi();
            let all = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
            match all.iter().find(|each| each["type"] == "Ready") {
                Some(ready) if ready["status"] == status => Ok(()),
                _ => Err(vmi["status"]["conditions"].to_string()),
            }
        });
    }

    /// The output of a command that can use `disk SERIAL`.
    #[track_caller]
    fn run(&mut self, command: &str) -> String {
        self.shell.run(&format!("{FIND}; {command}"))
    }
}

#[test]
fn a_guest_answers_probes_keeps_nothing_that_passes_and_is_bitten_by_its_watchdog() {
    let mut test = Test::begin();
    its_disks_are_as_they_were_described(&mut test);
    its_web_server_is_its_readiness(&mut test);
    a_neglected_watchdog_ends_the_run(&mut test);
    temporary_disks_are_empty_again_and_others_keep_their_data(&mut test);
    its_agent_is_its_readiness(&mut test);
    a_neglected_watchdog_resets_the_guest(&mut test);
    test.node.kubectl().run("delete vm a --wait=false");
    test.node.until_empty();
}

fn its_disks_are_as_they_were_described(test: &mut Test) {
    let read = |file: &str| format!("mount -o ro /dev/sr0 /mnt && cat /mnt/{file}; umount /mnt");
    assert_eq!(test.run(&read("Autounattend.xml")), "<answers/>");
    assert_eq!(test.run(&read("other.xml")), "<other/>");
    let label = "dd if=/dev/sr0 bs=1 skip=32808 count=10 2>/dev/null";
    assert_eq!(test.run(label), "unattendCD");
    let sizes = "cd /sys/block/$(disk BLOCKS)/queue; cat logical_block_size physical_block_size";
    assert_eq!(test.run(sizes), "4096\n4096");
    assert_eq!(test.run("disk RAW | grep -c ^sd"), "1");
    assert_eq!(test.run("cat /sys/block/$(disk RAW)/size"), (8 << 11).to_string());
    for serial in ["PASSING", "RAW"] {
        let write = format!("echo {serial} | dd of=/dev/$(disk {serial}) conv=fsync 2>/dev/null");
        test.run(&write);
        let read = format!("head -c {} /dev/$(disk {serial})", serial.len());
        assert_eq!(test.run(&read), serial);
    }
    // The host has no room: the guest gets an error, and goes on.
    let fill = "dd if=/dev/zero of=/dev/$(disk FULL) bs=1M count=16 conv=fsync 2>&1 | \
        grep -oiE 'i/o error|input/output error' | head -1 | tr A-Z a-z | cut -c1";
    assert_eq!(test.run(fill), "i");
    let vmi = test.vmi();
    assert!(!vmi["status"]["conditions"].to_string().contains("Paused"), "{vmi}");
}

fn its_web_server_is_its_readiness(test: &mut Test) {
    test.until_ready("False");
    test.run("mkdir -p /tmp/web && echo fine >/tmp/web/health && httpd -p 8080 -h /tmp/web");
    test.until_ready("True");
    test.run("rm /tmp/web/health");
    test.until_ready("False");
    test.run("echo fine >/tmp/web/health");
    test.until_ready("True");
    test.run("killall httpd");
    test.until_ready("False");
}

fn a_neglected_watchdog_ends_the_run(test: &mut Test) {
    let first = test.vmi()["metadata"]["uid"].clone();
    let probe = json!({"httpGet": null, "guestAgentPing": {}});
    let device = json!({"i6300esb": {"action": "reset"}});
    let patch = json!({"spec": {"template": {"spec": {"readinessProbe": probe,
        "domain": {"devices": {"watchdog": device}}}}}});
    test.node.sheaf.http().merge(VMS, &patch).ok();
    test.shell.send(&format!("{}\n", NEGLECT.join("; ")));
    eventually("it runs anew", || {
        let vmi = test.vmi();
        vmi["status"]["phase"] == "Running" && vmi["metadata"]["uid"] != first
    });
    test.shell = Shell::login(&test.node, "a");
}

fn temporary_disks_are_empty_again_and_others_keep_their_data(test: &mut Test) {
    let read = |serial: &str| format!("head -c 3 /dev/$(disk {serial}) | xxd -p");
    assert_eq!(test.run(&read("PASSING")), "000000");
    assert_eq!(test.run(&read("RAW")), "524157");
}

fn its_agent_is_its_readiness(test: &mut Test) {
    test.until_ready("True");
    test.run("killall -STOP qemu-ga");
    test.until_ready("False");
    test.run("killall -CONT qemu-ga");
    test.until_ready("True");
}

fn a_neglected_watchdog_resets_the_guest(test: &mut Test) {
    let (first, processes) = (test.vmi()["metadata"]["uid"].clone(), test.node.processes());
    test.shell.send(&format!("{}\n", NEGLECT.join("; ")));
    test.shell.until("GUEST: booted");
    assert_eq!(test.node.processes(), processes);
    assert_eq!(test.vmi()["metadata"]["uid"], first);
}
