// What can be done to snapshots of machines.
import { FIELD_MANAGER, post } from "../api/http.ts";
import { BACKUP, pathOf, RESTORE, SNAPSHOT } from "../api/kinds.ts";
import type { MachineSnapshot } from "../api/types.ts";
import { confirm } from "../components/Confirm.tsx";
import type { MenuItem } from "../components/Menu.tsx";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { invalidName } from "../model/name.ts";
import type { Status } from "../model/status.ts";
import { machinePath } from "../router.ts";
import { stamp } from "./machine.tsx";
import { deleteObject, notAllowed } from "./remove.ts";

export const sourceOf = (snapshot: MachineSnapshot): string => snapshot.spec?.source?.name ?? "";

export function snapshotStatus(snapshot: MachineSnapshot): Status {
  const { phase, readyToUse, error } = snapshot.status ?? {};
  if (snapshot.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  if (readyToUse) return { tone: "ok", word: "Ready" };
  if (phase === "Failed") return { tone: "bad", word: "Failed", reason: error?.message };
  return { tone: "busy", word: "In progress", reason: error?.message };
}

/** The restore of a snapshot to a machine: the one that it is of, or one that does not exist yet. */
const restoreOf = (snapshot: MachineSnapshot, target: string) => ({
  apiVersion: "snapshot.kubevirt.io/v1beta1", kind: "VirtualMachineRestore",
  metadata: { name: `${target}-${stamp()}`, namespace: snapshot.metadata.namespace },
  spec: {
    target: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: target },
    virtualMachineSnapshotName: snapshot.metadata.name,
    targetReadinessPolicy: "StopTarget",
  },
});

async function restore(snapshot: MachineSnapshot, target: string): Promise<void> {
  const { namespace = "" } = snapshot.metadata;
  const body = restoreOf(snapshot, target);
  const link = { label: t("Show {name}", { name: target }), href: machinePath(namespace, target) };
  const command = `kubectl create -f - <<< '${JSON.stringify(body)}'`;
  await perform(`${t("Restore")}: ${target}`, () => post(pathOf(RESTORE, namespace), body, { query: { fieldManager: FIELD_MANAGER } }), { link, command });
}

async function askRestore(snapshot: MachineSnapshot): Promise<void> {
  const target = sourceOf(snapshot);
  const answer = await confirm({
    title: t("Go back to {snapshot}?", { snapshot: snapshot.metadata.name }),
    body: <p>{t("{name} is stopped, and its disks and configuration become those of the snapshot. What was written since is lost; take a snapshot first to keep it.", { name: target })}</p>,
    action: t("Restore"),
    danger: true,
  });
  if (answer) await restore(snapshot, target);
}

async function askRestoreAsNew(snapshot: MachineSnapshot): Promise<void> {
  const answer = await confirm({
    title: t("A new machine from {snapshot}", { snapshot: snapshot.metadata.name }),
    body: <p>{t("It gets copies of the disks and the configuration of then, and MAC addresses of its own. It does not start by itself; {name} is not touched.", { name: sourceOf(snapshot) })}</p>,
    text: { label: t("Name of the new machine"), initially: `${sourceOf(snapshot)}-restored`, invalid: invalidName },
    action: t("Create machine"),
  });
  if (answer) await restore(snapshot, answer.text);
}

/** A snapshot that a backup object asked for is made again unless that object goes. */
function ownerOf(snapshot: MachineSnapshot): string | undefined {
  return snapshot.metadata.ownerReferences?.find((one) => one.kind === BACKUP.kind)?.name;
}

async function askDelete(snapshot: MachineSnapshot): Promise<void> {
  const { name, namespace } = snapshot.metadata;
  const answer = await confirm({ title: t("Delete the snapshot {name}?", { name }), body: <p>{t("The machine and its disks are not touched.")}</p>, action: t("Delete"), danger: true });
  const owner = ownerOf(snapshot);
  const [kind, object] = owner ? [BACKUP, owner] : [SNAPSHOT, name];
  if (answer) await deleteObject(kind, namespace, object, name);
}

export function snapshotMenu(snapshot: MachineSnapshot): MenuItem[] {
  const unready = snapshot.status?.readyToUse ? undefined : t("The snapshot is not ready");
  const refusal = notAllowed("create", RESTORE) ?? unready;
  const kind = ownerOf(snapshot) ? BACKUP : SNAPSHOT;
  const undeletable = notAllowed("delete", kind);
  return [
    { label: t("Restore…"), icon: "undo", disabled: refusal, run: () => void askRestore(snapshot) },
    { label: t("Restore as new machine…"), icon: "plus", disabled: refusal, run: () => void askRestoreAsNew(snapshot) },
    { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: undeletable, run: () => void askDelete(snapshot) },
  ];
}
