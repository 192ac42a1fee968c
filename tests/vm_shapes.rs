//! Manifests as people have them go in as they are: the shapes of KubeVirt's own examples, of
//! Harvester's machines, and of Cluster API's provider for KubeVirt, in our words.

use crate::harness::Sheaf;

/// Domain, further fields of the instance's specification, and volumes, in brief YAML.
const SPECS: &[(&str, &str)] = &[
    (
        "an image and a seed, and no word about networks",
        "
domain:
  memory: {guest: 128Mi}
  devices: {disks: [{name: image, disk: {}}, {name: seed, disk: {bus: virtio}}]}
volumes:
- {name: image, containerDisk: {image: registry.example/cirros}}
- {name: seed, cloudInitNoCloud: {userDataBase64: IyEvYmluL3NoCg==}}
",
    ),
    (
        "a network without an interface",
        "
domain:
  cpu: {cores: 4}
  memory: {guest: 16Gi}
  devices: {disks: [{name: root, disk: {bus: virtio}}]}
networks: [{name: platform, multus: {networkName: default/platform}}]
volumes: [{name: root, persistentVolumeClaim: {claimName: root}}]
",
    ),
    (
        "memory by its request, disks on every bus",
        "
domain:
  resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi, cpu: 2}}
  devices:
    disks:
    - {name: a, disk: {bus: sata}, bootOrder: 2}
    - {name: b, disk: {bus: scsi}, serial: B, cache: none, io: native}
    - {name: c, disk: {bus: usb}, errorPolicy: enospace}
    - {name: d, cdrom: {bus: sata}, bootOrder: 1}
    - {name: e, lun: {bus: scsi}}
    - {name: f, disk: {bus: virtio}, dedicatedIOThread: true, blockSize: {matchVolume: {}}}
volumes:
- {name: a, emptyDisk: {capacity: 1Gi}}
- {name: b, ephemeral: {persistentVolumeClaim: {claimName: b}}}
- {name: c, configMap: {name: c}}
- {name: d, sysprep: {secret: {name: d}}}
- {name: e, persistentVolumeClaim: {claimName: e}}
- {name: f, dataVolume: {name: f}}
",
    ),
    (
        "Windows",
        "
terminationGracePeriodSeconds: 3600
domain:
  clock:
    utc: {}
    timer: {hpet: {present: false}, pit: {tickPolicy: delay}, rtc: {tickPolicy: catchup}, hyperv: {}}
  cpu: {cores: 2, sockets: 1, threads: 1, model: host-model}
  memory: {guest: 4Gi}
  features:
    acpi: {}
    apic: {}
    smm: {enabled: true}
    hyperv: {relaxed: {}, vapic: {}, spinlocks: {spinlocks: 8191}, vpindex: {}, synic: {}, synictimer: {direct: {}}}
  firmware: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223, bootloader: {efi: {secureBoot: true, persistent: true}}}
  devices:
    tpm: {persistent: true}
    inputs: [{type: tablet, bus: usb, name: tablet}]
    sound: {name: audio, model: ich9}
    disks: [{name: disk, disk: {bus: sata}}, {name: drivers, cdrom: {bus: sata}}]
    interfaces: [{name: default, masquerade: {}, model: e1000}]
networks: [{name: default, pod: {}}]
volumes:
- {name: disk, persistentVolumeClaim: {claimName: windows}}
- {name: drivers, containerDisk: {image: registry.example/virtio}}
",
    ),
    (
        "a kernel of its own",
        "
domain:
  memory: {guest: 256Mi}
  devices: {}
  firmware:
    kernelBoot:
      container: {image: registry.example/kernel:1, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
      kernelArgs: console=ttyS0
",
    ),
    (
        "Harvester's",
        "
evictionStrategy: LiveMigrateIfPossible
hostname: web
terminationGracePeriodSeconds: 120
affinity: {}
accessCredentials:
- sshPublicKey: {source: {secret: {secretName: web}}, propagationMethod: {qemuGuestAgent: {users: [root]}}}
domain:
  cpu: {cores: 2, sockets: 1, threads: 1, maxSockets: 1}
  machine: {type: q35}
  memory: {guest: 3996Mi}
  resources: {limits: {cpu: 2, memory: 4Gi}, requests: {cpu: 125m, memory: 2730Mi}}
  features: {acpi: {enabled: true}}
  devices:
    disks: [{name: disk-0, bootOrder: 1, disk: {bus: virtio}}, {name: cloudinitdisk, disk: {bus: virtio}}]
    inputs: [{bus: usb, name: tablet, type: tablet}]
    interfaces: [{name: default, masquerade: {}, model: virtio, macAddress: 'fe:16:3e:1e:aa:01'}]
networks: [{name: default, pod: {}}]
volumes:
- {name: disk-0, persistentVolumeClaim: {claimName: web-disk-0}}
- {name: cloudinitdisk, cloudInitNoCloud: {secretRef: {name: web}, networkDataSecretRef: {name: web}}}
",
    ),
    (
        "Cluster API's",
        "
evictionStrategy: External
domain:
  cpu: {cores: 2}
  memory: {guest: 4Gi}
  devices:
    networkInterfaceMultiqueue: true
    disks: [{name: containervolume, disk: {bus: virtio}}, {name: cloudinitvolume, disk: {bus: virtio}}]
volumes:
- {name: containervolume, containerDisk: {image: 'quay.example/node:v1.30'}}
- {name: cloudinitvolume, cloudInitConfigDrive: {secretRef: {name: bootstrap-userdata}}}
",
    ),
];

#[test]
fn manifests_as_people_have_them_go_in() {
    let sheaf = Sheaf::start();
    let kubectl = sheaf.kubectl();
    for (shape, spec) in SPECS {
        let indented = spec.trim_matches('\n').replace('\n', "\n      ");
        for strategy in ["runStrategy: Always", "running: false", "runStrategy: Once"] {
            let manifest = format!(
                "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: shape, labels: {{app: shape}}}}
spec:
  {strategy}
  template:
    metadata: {{labels: {{kubevirt.io/vm: shape}}}}
    spec:
      {indented}
"
            );
            let output = kubectl.output("create --dry-run=server -o name -f -", &manifest);
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{shape}, {strategy}: {complaint}");
        }
        let instance = format!(
            "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: shape}}
spec:
      {indented}
"
        );
        let output = kubectl.output("create --dry-run=server -o name -f -", &instance);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{shape}: {complaint}");
    }
}
