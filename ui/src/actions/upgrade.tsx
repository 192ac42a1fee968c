// What can be done to upgrades: begin one, and steer it.
import { FIELD_MANAGER, get, mergePatch, post, put } from "../api/http.ts";
import { pathOf, UPGRADE, VERSION } from "../api/kinds.ts";
import type { Upgrade } from "../api/types.ts";
import { confirm } from "../components/Confirm.tsx";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { ATTEMPT, INTENT, sumOf } from "../model/upgrade.ts";

export const NAMESPACE = "harvester-system";
const UPLOADED = "sheaf://programs";

/** Brings a program to the server and begins the upgrade. */
export async function beginUpgrade(file: File): Promise<void> {
  const sum = await sumOf(file);
  await put(`/sheaf/v1/program-uploads/${sum}`, file);
  await create(`sheaf-${sum.slice(0, 12)}`, UPLOADED, sum);
}

/** The same with a program that hosts fetch themselves. */
export const beginUpgradeFrom = (url: string, sum: string) => create(`sheaf-${sum.slice(0, 12)}`, url, sum);

async function create(version: string, url: string, sum: string): Promise<void> {
  const query = { fieldManager: FIELD_MANAGER };
  const known = await get(pathOf(VERSION, NAMESPACE, version)).then(() => true, () => false);
  if (!known) {
    await post(pathOf(VERSION, NAMESPACE), { apiVersion: "harvesterhci.io/v1beta1", kind: "Version", metadata: { name: version }, spec: { isoURL: url, isoChecksum: sum } }, { query });
  }
  await post(pathOf(UPGRADE, NAMESPACE), { apiVersion: "harvesterhci.io/v1beta1", kind: "Upgrade", metadata: { generateName: "hvst-upgrade-" }, spec: { version } }, { query });
}

const annotate = (upgrade: Upgrade, key: string, value: string | null) => mergePatch(pathOf(UPGRADE, NAMESPACE, upgrade.metadata.name), { metadata: { annotations: { [key]: value } } });

export type UpgradeAction = "pause" | "resume" | "retry" | "abort" | "finalize";

export const LABELS: Record<UpgradeAction, string> = { pause: "Pause", resume: "Resume", retry: "Try again", abort: "Abort and go back", finalize: "Make final" };

export async function steer(upgrade: Upgrade, action: UpgradeAction): Promise<void> {
  const command = `sheaf upgrade ${action}`;
  if (action === "abort" || action === "finalize") {
    const body = action === "abort" ? t("All hosts go back to the program before, one after the other. Machines keep running.") : t("The upgrade cannot be undone any more.");
    if (!(await confirm({ title: `${t(LABELS[action])}?`, body: <p>{body}</p>, action: t(LABELS[action]) }))) return;
  }
  const next = String(Number(upgrade.metadata.annotations?.[ATTEMPT] ?? "1") + 1);
  const work = () => {
    if (action === "retry") return annotate(upgrade, ATTEMPT, next);
    return annotate(upgrade, INTENT, action === "resume" ? null : action);
  };
  await perform(t(LABELS[action]), work, { command });
}
