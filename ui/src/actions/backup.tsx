// What can be done to Harvester's backup objects. Those of the type snapshot are carried out as
// snapshots of machines; those of the type backup go to a target outside the cluster.
import { FIELD_MANAGER, post } from "../api/http.ts";
import { BACKUP, MACHINE_RESTORE, pathOf } from "../api/kinds.ts";
import type { MachineBackup } from "../api/types.ts";
import { confirm } from "../components/Confirm.tsx";
import type { MenuItem } from "../components/Menu.tsx";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { machineOf } from "../model/backup.ts";
import { invalidName } from "../model/name.ts";
import { machinePath } from "../router.ts";
import { deleteObject, notAllowed } from "./remove.ts";

const reference = (name: string) => ({ apiGroup: "kubevirt.io", kind: "VirtualMachine", name });

export const backupOf = (namespace: string, machine: string, name: string) => ({
  apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineBackup", metadata: { name, namespace },
  spec: { type: "backup", source: reference(machine) },
});

export function createBackup(namespace: string, machine: string, name: string): Promise<unknown> {
  return post(pathOf(BACKUP, namespace), backupOf(namespace, machine, name), { query: { fieldManager: FIELD_MANAGER } });
}

async function restore(backup: MachineBackup, target: string, newVM: boolean): Promise<void> {
  const { name, namespace = "" } = backup.metadata;
  // A name of its own: the same backup may be restored again.
  const body = {
    apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineRestore",
    metadata: { generateName: `${target}-`, namespace },
    spec: { target: reference(target), virtualMachineBackupName: name, virtualMachineBackupNamespace: namespace, newVM, ...(newVM ? {} : { deletionPolicy: "retain" }) },
  };
  const link = { label: t("Show {name}", { name: target }), href: machinePath(namespace, target) };
  const command = `kubectl create -f - <<< '${JSON.stringify(body)}'`;
  await perform(`${t("Restore")}: ${target}`, () => post(pathOf(MACHINE_RESTORE, namespace), body, { query: { fieldManager: FIELD_MANAGER } }), { link, command });
}

async function askReplace(backup: MachineBackup): Promise<void> {
  const target = machineOf(backup);
  const answer = await confirm({
    title: t("Replace {name} by {backup}?", { name: target, backup: backup.metadata.name }),
    body: <p>{t("{name} must be stopped. Its disks and configuration become those of the backup, and it is started; the volumes that it has now are kept.", { name: target })}</p>,
    action: t("Replace"),
    danger: true,
  });
  if (answer) await restore(backup, target, false);
}

async function askRestoreAsNew(backup: MachineBackup): Promise<void> {
  const source = machineOf(backup);
  const answer = await confirm({
    title: t("A new machine from {backup}", { backup: backup.metadata.name }),
    body: <p>{t("It gets disks with the data of the backup, the configuration of then, and MAC addresses of its own. It starts when its disks are filled; {name} is not touched.", { name: source })}</p>,
    text: { label: t("Name of the new machine"), initially: `${source}-restored`, invalid: invalidName },
    action: t("Create machine"),
  });
  if (answer) await restore(backup, answer.text, true);
}

async function askDelete(backup: MachineBackup): Promise<void> {
  const { name, namespace } = backup.metadata;
  const body = <p>{t("Its data is removed from the backup target. The machine and its disks are not touched.")}</p>;
  if (!(await confirm({ title: t("Delete the backup {name}?", { name }), body, action: t("Delete"), danger: true }))) return;
  await deleteObject(BACKUP, namespace, name);
}

export function backupMenu(backup: MachineBackup): MenuItem[] {
  const unready = backup.status?.readyToUse ? undefined : t("The backup is not ready");
  const refusal = notAllowed("create", MACHINE_RESTORE) ?? unready;
  return [
    { label: t("Restore as new machine…"), icon: "plus", disabled: refusal, run: () => void askRestoreAsNew(backup) },
    { label: t("Replace the machine…"), icon: "undo", disabled: refusal, run: () => void askReplace(backup) },
    { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: notAllowed("delete", BACKUP), run: () => void askDelete(backup) },
  ];
}
