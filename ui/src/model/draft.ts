// A machine that is about to be made: what the form holds, and the object that it stands for. Pure.
import { invalidName } from "./name.ts";
import type { KubeObject } from "../api/objects.ts";

export type Source = "image" | "container" | "url" | "template";

export interface Draft {
  name: string;
  namespace: string;
  count: number;
  source: Source;
  /** `namespace/name` of an image. */
  image: string;
  /** The image is an installation medium, for an empty disk. */
  iso: boolean;
  container: string;
  url: string;
  /** `namespace/name` of a version of a template. */
  template: string;
  diskGi: number;
  /** An instance type; empty for the numbers below. */
  size: string;
  cpus: number;
  memoryMi: number;
  networks: string[];
  keys: string[];
  pastedKey: string;
  password: string;
  cloudConfig: string;
  efi: boolean;
  start: boolean;
}

export const EMPTY: Draft = {
  name: "", namespace: "default", count: 1, source: "image", image: "", iso: false, container: "quay.io/containerdisks/debian:12",
  url: "", template: "", diskGi: 10, size: "", cpus: 1, memoryMi: 1024, networks: [], keys: [], pastedKey: "", password: "",
  cloudConfig: "", efi: false, start: true,
};

export interface DraftContext {
  /** Classes of images, by `namespace/name`. */
  imageClasses: Map<string, string>;
  defaultClass: string;
  /** Public keys by `namespace/name`. */
  publicKeys: Map<string, string>;
  templates: Map<string, { metadata?: Record<string, unknown>; spec?: Record<string, unknown> }>;
}

export const namesOf = (draft: Draft): string[] =>
  draft.count <= 1 ? [draft.name] : Array.from({ length: draft.count }, (_, index) => `${draft.name}-${index + 1}`);

/** What cloud-init is told; nothing if there is nothing to tell. */
export function userData(draft: Draft, name: string, publicKeys: Map<string, string>): string | undefined {
  const keys = [...draft.keys.map((id) => publicKeys.get(id) ?? ""), ...draft.pastedKey.split("\n")];
  const given = keys.map((key) => key.trim()).filter((key) => key !== "");
  const extra = draft.cloudConfig.replace(/^#cloud-config\s*\n/, "").trim();
  if (given.length === 0 && draft.password === "" && extra === "") return undefined;
  const lines = ["#cloud-config", `hostname: ${name}`];
  if (draft.password !== "") {
    // JSON strings are YAML strings, whatever is in them.
    lines.push(`password: ${JSON.stringify(draft.password)}`, "chpasswd: {expire: false}", "ssh_pwauth: true");
  }
  if (given.length > 0) lines.push("ssh_authorized_keys:", ...given.map((key) => `  - ${JSON.stringify(key)}`));
  if (extra !== "") lines.push(extra);
  return `${lines.join("\n")}\n`;
}

interface DiskPlan {
  disks: unknown[];
  volumes: unknown[];
  claims: unknown[];
  dataVolumes: unknown[];
}

const claim = (name: string, storageClassName: string, gi: number, imageId?: string) => ({
  metadata: { name, annotations: imageId ? { "harvesterhci.io/imageId": imageId } : {} },
  spec: { accessModes: ["ReadWriteMany"], volumeMode: "Block", storageClassName, resources: { requests: { storage: `${gi}Gi` } } },
});

function diskPlan(draft: Draft, name: string, context: DraftContext): DiskPlan {
  const root = { name: "disk", bootOrder: 1, disk: { bus: "virtio" } };
  if (draft.source === "container") {
    return { disks: [root], volumes: [{ name: "disk", containerDisk: { image: draft.container } }], claims: [], dataVolumes: [] };
  }
  if (draft.source === "url") {
    const volume = {
      metadata: { name: `${name}-disk` },
      spec: { source: { http: { url: draft.url } }, storage: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: `${draft.diskGi}Gi` } } } },
    };
    return { disks: [root], volumes: [{ name: "disk", dataVolume: { name: `${name}-disk` } }], claims: [], dataVolumes: [volume] };
  }
  const imageClass = context.imageClasses.get(draft.image) ?? "";
  const claimVolume = (disk: string) => ({ name: disk, persistentVolumeClaim: { claimName: `${name}-${disk}` } });
  if (draft.iso) {
    return {
      disks: [{ ...root, bootOrder: 2 }, { name: "iso", bootOrder: 1, cdrom: { bus: "sata" } }],
      volumes: [claimVolume("disk"), claimVolume("iso")],
      claims: [claim(`${name}-disk`, context.defaultClass, draft.diskGi), claim(`${name}-iso`, imageClass, draft.diskGi, draft.image)],
      dataVolumes: [],
    };
  }
  return { disks: [root], volumes: [claimVolume("disk")], claims: [claim(`${name}-disk`, imageClass, draft.diskGi, draft.image)], dataVolumes: [] };
}

const CLAIMS = "harvesterhci.io/volumeClaimTemplates";

/** The machine of a template's version, with names of its own. */
function fromTemplate(draft: Draft, name: string, context: DraftContext): KubeObject {
  const vm = structuredClone(context.templates.get(draft.template) ?? {});
  const metadata = (vm.metadata ?? {}) as { annotations?: Record<string, string>; labels?: Record<string, string> };
  let text = JSON.stringify({ ...vm, metadata: undefined });
  const annotations = { ...metadata.annotations };
  const claims = JSON.parse(annotations[CLAIMS] ?? "[]") as { metadata: { name: string } }[];
  for (const [index, one] of claims.entries()) {
    const renamed = `${name}-disk-${index}`;
    text = text.replaceAll(JSON.stringify(one.metadata.name), JSON.stringify(renamed));
    one.metadata.name = renamed;
  }
  if (claims.length > 0) annotations[CLAIMS] = JSON.stringify(claims);
  const rest = JSON.parse(text) as Record<string, unknown>;
  return { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata: { name, namespace: draft.namespace, labels: metadata.labels, annotations }, ...rest } as KubeObject;
}

/** The object that is created for one of the draft's names. */
export function machineObject(draft: Draft, name: string, context: DraftContext): KubeObject {
  if (draft.source === "template") return fromTemplate(draft, name, context);
  const { disks, volumes, claims, dataVolumes } = diskPlan(draft, name, context);
  const data = userData(draft, name, context.publicKeys);
  if (data !== undefined) {
    disks.push({ name: "cloud-init", disk: { bus: "virtio" } });
    volumes.push({ name: "cloud-init", cloudInitNoCloud: { userData: data } });
  }
  const extra = draft.networks.map((network, index) => ({ name: `net-${index + 1}`, network }));
  const domain = {
    ...(draft.size === "" ? { cpu: { sockets: draft.cpus, cores: 1, threads: 1 }, memory: { guest: `${draft.memoryMi}Mi` } } : {}),
    ...(draft.efi ? { firmware: { bootloader: { efi: { secureBoot: false } } } } : {}),
    devices: {
      disks,
      interfaces: [
        { name: "default", model: "virtio", masquerade: {} },
        ...extra.map(({ name: own }) => ({ name: own, model: "virtio", bridge: {} })),
      ],
      rng: {},
    },
  };
  return {
    apiVersion: "kubevirt.io/v1",
    kind: "VirtualMachine",
    metadata: {
      name,
      namespace: draft.namespace,
      ...(claims.length > 0 ? { annotations: { [CLAIMS]: JSON.stringify(claims) } } : {}),
    },
    spec: {
      runStrategy: draft.start ? "RerunOnFailure" : "Halted",
      ...(draft.size === "" ? {} : { instancetype: { kind: "VirtualMachineClusterInstancetype", name: draft.size } }),
      ...(dataVolumes.length > 0 ? { dataVolumeTemplates: dataVolumes } : {}),
      template: {
        metadata: { labels: { "kubevirt.io/vm": name } },
        spec: {
          domain,
          networks: [{ name: "default", pod: {} }, ...extra.map(({ name: own, network }) => ({ name: own, multus: { networkName: network } }))],
          volumes,
        },
      },
    },
  } as KubeObject;
}

/** What is still missing before the draft can be sent. */
export function missing(draft: Draft): string | undefined {
  const wrong = invalidName(draft.name);
  if (wrong) return wrong;
  if (draft.source === "image" && draft.image === "") return "Choose an image";
  if (draft.source === "container" && draft.container === "") return "Name a container image";
  if (draft.source === "url" && !/^https?:\/\/.+/.test(draft.url)) return "A URL is missing";
  if (draft.source === "template" && draft.template === "") return "Choose a template";
  return undefined;
}
