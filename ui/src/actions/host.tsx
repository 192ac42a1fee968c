// What can be done to hosts: cordon, and maintenance with a preview of what it does.
import { get, mergePatch, post } from "../api/http.ts";
import { HOST, pathOf } from "../api/kinds.ts";
import type { Host } from "../api/types.ts";
import { confirm } from "../components/Confirm.tsx";
import { plural, t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { inMaintenance } from "../model/host.ts";

const restPath = (name: string) => `/v1/harvester/nodes/${encodeURIComponent(name)}`;

export async function cordon(host: Host, machines: number): Promise<void> {
  const { name } = host.metadata;
  const wanted = !host.spec?.unschedulable;
  if (wanted) {
    const body = <p>{t("No new machine is placed on it. {machines} on it keep running, but do not start again there after they stop.", { machines: plural(machines, "machine") })}</p>;
    if (!(await confirm({ title: t("Cordon {name}?", { name }), body, action: t("Cordon") }))) return;
  }
  const command = `kubectl ${wanted ? "cordon" : "uncordon"} ${name}`;
  await perform(`${wanted ? t("Cordon") : t("Uncordon")}: ${name}`, () => mergePatch(pathOf(HOST, "", name), { spec: { unschedulable: wanted || null } }), { command });
}

export interface PreviewedMachine {
  namespace: string;
  name: string;
  action: "Migrate" | "ShutDown" | "Blocked";
  forced: "Migrate" | "ShutDown" | "Blocked";
  reason?: string | null;
}

export interface MaintenancePreview {
  /** Why the host cannot be put into maintenance at all. */
  refusal: string | null;
  machines: PreviewedMachine[];
}

/** What maintenance would do; changes nothing. */
export const previewMaintenance = (name: string) => get<MaintenancePreview>(`${restPath(name)}/maintenance`);

export const enableMaintenance = (name: string, force: boolean) => post(`${restPath(name)}?action=enableMaintenanceMode`, { force: String(force) });

export async function disableMaintenance(host: Host): Promise<void> {
  const { name } = host.metadata;
  const done = inMaintenance(host) === "completed";
  const body = <p>{done ? t("New machines may be placed on it again. Machines that left stay where they are.") : t("Machines that have not left yet stay on it.")}</p>;
  if (!(await confirm({ title: t("End the maintenance of {name}?", { name }), body, action: t("End maintenance") }))) return;
  const command = `sheaf node maintenance ${name} --off`;
  await perform(`${t("End maintenance")}: ${name}`, () => post(`${restPath(name)}?action=disableMaintenanceMode`, {}), { command });
}
