// What can be done to snapshots of machines.
import { FIELD_MANAGER, post, remove } from "../api/http.ts";
import { pathOf, RESTORE, SNAPSHOT } from "../api/kinds.ts";
import type { MachineSnapshot } from "../api/types.ts";
import { confirm } from "../components/Confirm.tsx";
import type { MenuItem } from "../components/Menu.tsx";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import type { Status } from "../model/status.ts";
import { stamp } from "./machine.tsx";

export const sourceOf = (snapshot: MachineSnapshot): string => snapshot.spec?.source?.name ?? "";

export function snapshotStatus(snapshot: MachineSnapshot): Status {
  const { phase, readyToUse, error } = snapshot.status ?? {};
  if (snapshot.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  if (readyToUse) return { tone: "ok", word: "Ready" };
  if (phase === "Failed") return { tone: "bad", word: "Failed", reason: error?.message };
  return { tone: "busy", word: "In progress", reason: error?.message };
}

async function restore(snapshot: MachineSnapshot, target: string): Promise<void> {
  const body = {
    apiVersion: "snapshot.kubevirt.io/v1beta1", kind: "VirtualMachineRestore",
    metadata: { name: `${target}-${stamp()}`, namespace: snapshot.metadata.namespace },
    spec: {
      target: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: target },
      virtualMachineSnapshotName: snapshot.metadata.name,
      targetReadinessPolicy: "StopTarget",
    },
  };
  await post(pathOf(RESTORE, snapshot.metadata.namespace), body, { query: { fieldManager: FIELD_MANAGER } });
}

async function askRestore(snapshot: MachineSnapshot): Promise<void> {
  const target = sourceOf(snapshot);
  const answer = await confirm({
    title: t("Go back to {snapshot}?", { snapshot: snapshot.metadata.name }),
    body: <p>{t("{name} is stopped, and its disks and configuration become those of the snapshot. What was written since is lost; take a snapshot first to keep it.", { name: target })}</p>,
    action: t("Restore"),
    danger: true,
  });
  if (answer) await perform(`${t("Restore")}: ${target}`, () => restore(snapshot, target));
}

async function askDelete(snapshot: MachineSnapshot): Promise<void> {
  const { name, namespace } = snapshot.metadata;
  const answer = await confirm({ title: t("Delete the snapshot {name}?", { name }), body: <p>{t("The machine and its disks are not touched.")}</p>, action: t("Delete"), danger: true });
  if (answer) await perform(`${t("Delete")}: ${name}`, () => remove(pathOf(SNAPSHOT, namespace, name)));
}

export function snapshotMenu(snapshot: MachineSnapshot): MenuItem[] {
  const unready = snapshot.status?.readyToUse ? undefined : t("The snapshot is not ready");
  return [
    { label: t("Restore…"), icon: "undo", disabled: unready, run: () => void askRestore(snapshot) },
    { label: t("Delete"), icon: "trash", danger: true, separated: true, run: () => void askDelete(snapshot) },
  ];
}
