// How much of the hosts is given to guests.
import type { Host } from "../api/types.ts";
import type { MachineRow } from "./machine.ts";
import { parseQuantity } from "./quantity.ts";

export interface Capacity {
  cpu: number;
  cpuUsed: number;
  memory: number;
  memoryUsed: number;
  /** How many more machines with 2 CPU and 4 Gi of memory fit; null without hosts. */
  fits: number | null;
}

const USUAL_MEMORY = 4 * 2 ** 30;

export function capacityOf(hosts: Iterable<Host>, rows: MachineRow[]): Capacity {
  let [cpu, memory, free, count] = [0, 0, 0, 0];
  for (const host of hosts) {
    const allocatable = (host.status?.allocatable ?? {}) as Record<string, string>;
    const own = parseQuantity(allocatable.memory) || 0;
    const used = rows.filter((row) => row.node === host.metadata.name).reduce((sum, row) => sum + (row.memory || 0), 0);
    cpu += parseQuantity(allocatable.cpu) || 0;
    memory += own;
    free += Math.max(0, Math.floor((own - used) / USUAL_MEMORY));
    count += 1;
  }
  const placed = rows.filter((row) => row.node !== "");
  const cpuUsed = placed.reduce((sum, row) => sum + row.cpus, 0);
  const memoryUsed = placed.reduce((sum, row) => sum + (row.memory || 0), 0);
  return { cpu, cpuUsed, memory, memoryUsed, fits: count > 0 ? free : null };
}
