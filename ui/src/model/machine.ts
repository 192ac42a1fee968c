// One row per machine, joined from the machine and its instance.
import type { Instance, Machine } from "../api/types.ts";
import { collection, type Collection } from "../api/watch.ts";
import { INSTANCE, MACHINE } from "../api/kinds.ts";
import type { Filterable } from "./filter.ts";
import { parseQuantity } from "./quantity.ts";
import { machineStatus, type Status } from "./status.ts";

export interface MachineRow extends Filterable {
  key: string;
  namespace: string;
  name: string;
  machine: Machine;
  instance?: Instance;
  status: Status;
  cpus: number;
  memory: number;
  addresses: string[];
  node: string;
  size: string;
  created?: string;
}

/** Cores in all: sockets × cores × threads, one where nothing is said. */
function cpusOf(machine: Machine, instance?: Instance): number {
  const cpu = instance?.spec?.domain?.cpu ?? machine.spec?.template?.spec?.domain?.cpu;
  if (cpu) return (cpu.sockets ?? 1) * (cpu.cores ?? 1) * (cpu.threads ?? 1);
  const requests = machine.spec?.template?.spec?.domain?.resources?.requests as Record<string, string> | undefined;
  return Math.ceil(parseQuantity(requests?.cpu) || 1);
}

function memoryOf(machine: Machine, instance?: Instance): number {
  const domain = instance?.spec?.domain ?? machine.spec?.template?.spec?.domain;
  const requests = domain?.resources?.requests as Record<string, string> | undefined;
  return parseQuantity(domain?.memory?.guest ?? requests?.memory);
}

function addressesOf(instance?: Instance): string[] {
  const interfaces = (instance?.status?.interfaces ?? []) as { ipAddress?: string; ipAddresses?: string[] }[];
  const found = interfaces.flatMap((one) => (one.ipAddresses?.length ? one.ipAddresses : [one.ipAddress ?? ""]));
  return [...new Set(found.filter((address) => address !== "" && !address.startsWith("fe80:")))];
}

export function machineRow(machine: Machine, instance: Instance | undefined): MachineRow {
  const { name, namespace = "", labels = {}, creationTimestamp } = machine.metadata;
  const status = machineStatus(machine, instance);
  const addresses = addressesOf(instance);
  const node = instance?.status?.nodeName ?? "";
  const size = machine.spec?.instancetype?.name ?? "";
  const [cpus, memory] = [cpusOf(machine, instance), memoryOf(machine, instance)];
  const tags = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  const created = creationTimestamp;
  return {
    key: `${namespace}/${name}`, namespace, name, machine, instance, status, cpus, memory, addresses, node, size, created,
    text: [name, namespace, node, size, ...addresses, ...tags].join(" ").toLowerCase(),
    fields: { status: status.word, project: namespace, node, tag: tags.join(" "), type: size, name },
    numbers: { cpu: cpus, mem: memory, age: created ? (Date.now() - Date.parse(created)) / 1000 : undefined },
  };
}

const rows = new Map<string, MachineRow>();

/** The rows now; one whose objects did not change is the same row as before. */
export function machineRows(machines: Collection<Machine>, instances: Collection<Instance>): MachineRow[] {
  const result: MachineRow[] = [];
  for (const [key, machine] of machines.items) {
    const instance = instances.items.get(key);
    let row = rows.get(key);
    if (!row || row.machine !== machine || row.instance !== instance) {
      row = machineRow(machine, instance);
      rows.set(key, row);
    }
    result.push(row);
  }
  for (const key of rows.keys()) if (!machines.items.has(key)) rows.delete(key);
  return result;
}

/** Those that other screens know of, without following them. */
export function knownMachines(): MachineRow[] {
  return machineRows(collection<Machine>(MACHINE), collection<Instance>(INSTANCE));
}

/** The claims that a machine uses, by the names of its disks. */
export function claimsOf(machine: Machine): Map<string, string> {
  const found = new Map<string, string>();
  for (const volume of machine.spec?.template?.spec?.volumes ?? []) {
    const claim = volume.persistentVolumeClaim?.claimName ?? volume.dataVolume?.name;
    if (claim) found.set(volume.name, claim);
  }
  return found;
}
