// Snapshots of one machine as a tree: each hangs below the state that the machine was in when it was
// taken. Pure.
//
// The API has no parents of snapshots. They follow from the order of events: after a snapshot, and after
// a restore in place, the machine continues from that snapshot.
import type { MachineRestore, MachineSnapshot } from "../api/types.ts";

export interface TreeRow {
  snapshot: MachineSnapshot;
  /** How many branches it is away from the line that leads to the present state. */
  depth: number;
  /** The machine continues from this one. */
  isCurrent: boolean;
}

interface Branch {
  snapshot: MachineSnapshot;
  children: Branch[];
}

const created = (snapshot: MachineSnapshot): string => snapshot.metadata.creationTimestamp ?? "";
const restored = (restore: MachineRestore): string => restore.status?.restoreTime ?? restore.metadata.creationTimestamp ?? "";

/** The roots of the tree, and the snapshot that the machine continues from. */
function grow(snapshots: MachineSnapshot[], restores: MachineRestore[]): { roots: Branch[]; current?: Branch } {
  const branches = new Map(snapshots.map((snapshot) => [snapshot.metadata.name, { snapshot, children: [] as Branch[] }]));
  const events = [
    ...snapshots.map((snapshot) => ({ time: created(snapshot), taken: true, name: snapshot.metadata.name })),
    ...restores.map((restore) => ({ time: restored(restore), taken: false, name: restore.spec?.virtualMachineSnapshotName ?? "" })),
  ].sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : Number(b.taken) - Number(a.taken)));
  const roots: Branch[] = [];
  let current: Branch | undefined;
  for (const { name, taken } of events) {
    const branch = branches.get(name);
    // Where the restored snapshot was deleted, the line of the machine is unknown: it begins anew.
    if (taken && branch) (current?.children ?? roots).push(branch);
    current = branch;
  }
  return { roots, current };
}

/** The snapshots of a machine in the order of their tree, the oldest first. */
export function snapshotTree(snapshots: Iterable<MachineSnapshot>, restores: Iterable<MachineRestore>, machine: string): TreeRow[] {
  const own = [...snapshots].filter((one) => one.spec?.source?.name === machine);
  const inPlace = [...restores].filter((one) => one.spec?.target?.name === machine && one.status?.complete === true);
  const { roots, current } = grow(own, inPlace);
  const leads = (branch: Branch): boolean => branch === current || branch.children.some(leads);
  const rows: TreeRow[] = [];
  /** Side branches come before the one that continues the line. */
  const add = (branches: Branch[], depth: number) => {
    const main = branches.find(leads) ?? branches.at(-1);
    for (const branch of [...branches.filter((one) => one !== main), ...(main ? [main] : [])]) {
      const own = branch === main ? depth : depth + 1;
      rows.push({ snapshot: branch.snapshot, depth: own, isCurrent: branch === current });
      add(branch.children, own);
    }
  };
  add(roots, 0);
  return rows;
}
