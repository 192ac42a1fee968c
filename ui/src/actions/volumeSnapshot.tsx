// What can be done to snapshots of volumes.
import { deleteObject, notAllowed } from "./remove.ts";
import { FIELD_MANAGER, post } from "../api/http.ts";
import { CLAIM, pathOf, VOLUME_SNAPSHOT } from "../api/kinds.ts";
import type { VolumeSnapshot } from "../api/types.ts";
import { confirm } from "../components/Confirm.tsx";
import type { MenuItem } from "../components/Menu.tsx";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import type { Status } from "../model/status.ts";
import { stamp } from "./machine.tsx";

export const claimOf = (snapshot: VolumeSnapshot): string => snapshot.spec?.source?.persistentVolumeClaimName ?? "";

export function volumeSnapshotStatus(snapshot: VolumeSnapshot): Status {
  if (snapshot.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  if (snapshot.status?.readyToUse) return { tone: "ok", word: "Ready" };
  const message = snapshot.status?.error?.message;
  return message ? { tone: "bad", word: "Failed", reason: message } : { tone: "busy", word: "In progress" };
}

/** A new volume with the data of the snapshot; the old one is not touched. */
async function restore(snapshot: VolumeSnapshot): Promise<void> {
  const { name, namespace } = snapshot.metadata;
  await post(pathOf(CLAIM, namespace), {
    apiVersion: "v1", kind: "PersistentVolumeClaim",
    metadata: { name: `${claimOf(snapshot)}-${stamp()}`, namespace },
    spec: {
      accessModes: ["ReadWriteOnce"], volumeMode: "Block",
      dataSource: { apiGroup: "snapshot.storage.k8s.io", kind: "VolumeSnapshot", name },
      resources: { requests: { storage: String(snapshot.status?.restoreSize ?? "1Gi") } },
    },
  }, { query: { fieldManager: FIELD_MANAGER } });
}

async function askDelete(snapshot: VolumeSnapshot): Promise<void> {
  const { name, namespace } = snapshot.metadata;
  const answer = await confirm({ title: t("Delete the snapshot {name}?", { name }), body: <p>{t("The volume is not touched.")}</p>, action: t("Delete"), danger: true });
  if (answer) await deleteObject(VOLUME_SNAPSHOT, namespace, name);
}

export function volumeSnapshotMenu(snapshot: VolumeSnapshot): MenuItem[] {
  const unready = snapshot.status?.readyToUse ? undefined : t("The snapshot is not ready");
  const refusal = notAllowed("create", CLAIM) ?? unready;
  const undeletable = notAllowed("delete", VOLUME_SNAPSHOT);
  const link = { link: { label: t("Show volumes"), href: "/volumes" } };
  return [
    { label: t("Restore to a new volume"), icon: "undo", disabled: refusal, run: () => void perform(`${t("Restore")}: ${claimOf(snapshot)}`, () => restore(snapshot), link) },
    { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: undeletable, run: () => void askDelete(snapshot) },
  ];
}
