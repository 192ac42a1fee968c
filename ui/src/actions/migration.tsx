// Moving running machines to other hosts.
import { FIELD_MANAGER, post, remove } from "../api/http.ts";
import { INSTANCE, MACHINE, MIGRATION, pathOf } from "../api/kinds.ts";
import { condition, type Condition } from "../api/objects.ts";
import type { Instance, Migration } from "../api/types.ts";
import { collection } from "../api/watch.ts";
import { confirm, type Answer, type Question } from "../components/Confirm.tsx";
import { plural, t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import type { MachineRow } from "../model/machine.ts";
import { stamp } from "./machine.tsx";

/** Why a machine cannot move now. */
export function migrationRefusal(row: MachineRow): string | undefined {
  const live = condition((row.instance?.status?.conditions ?? []) as Condition[], "LiveMigratable");
  if (live?.status === "False") return t("Cannot migrate: {why}", { why: live.message || live.reason || t("the server does not say why") });
  return row.status.word === "Migrating" ? t("The machine migrates already") : undefined;
}

/** The hosts that the server would move a machine to. */
async function targets(row: MachineRow): Promise<string[]> {
  const path = `/v1/harvester/${MACHINE.group}.${MACHINE.plural}/${row.namespace}/${row.name}?action=findMigratableNodes`;
  return (await post<{ nodes?: string[] | null }>(path, {})).nodes ?? [];
}

export async function migrationQuestion(rows: MachineRow[]): Promise<Question> {
  const any = { value: "", label: t("Any host that fits") };
  // Users who may not see hosts leave the choice to the server.
  const found = rows.length === 1 ? await targets(rows[0]).catch(() => null) : null;
  const options = [any, ...(found ?? []).map((name) => ({ value: name, label: name }))];
  const none = found?.length === 0;
  return {
    title: rows.length === 1 ? t("Migrate {name}?", { name: rows[0].name }) : t("Migrate {machines}?", { machines: plural(rows.length, "machine") }),
    action: t("Migrate"),
    body: (
      <p>
        {none
          ? t("No other host can take it now: none is ready, schedulable and has the labels that it asks for. The migration waits until there is one.")
          : t("The guest goes on running; it stands still for a moment when it changes hosts.")}
      </p>
    ),
    choice: rows.length === 1 ? { label: t("Target"), options } : undefined,
  };
}

export function migrate(row: MachineRow, { choice }: Answer): Promise<unknown> {
  const body = {
    apiVersion: "kubevirt.io/v1", kind: "VirtualMachineInstanceMigration",
    metadata: { name: `${row.name}-${stamp()}`, namespace: row.namespace },
    spec: { vmiName: row.name, ...(choice === "" ? {} : { addedNodeSelector: { "kubernetes.io/hostname": choice } }) },
  };
  return post(pathOf(MIGRATION, row.namespace), body, { query: { fieldManager: FIELD_MANAGER } });
}

export async function abortMigration(migration: Migration): Promise<void> {
  const { name, namespace } = migration.metadata;
  const machine = migration.spec?.vmiName ?? name;
  const node = collection<Instance>(INSTANCE).items.get(`${namespace}/${machine}`)?.status?.nodeName ?? t("its host");
  const body = <p>{t("The guest goes on running on {node}.", { node })}</p>;
  if (!(await confirm({ title: t("Abort the migration of {name}?", { name: machine }), body, action: t("Abort migration") }))) return;
  const command = `virtctl migrate-cancel ${machine} -n ${namespace}`;
  await perform(`${t("Abort migration")}: ${machine}`, () => remove(pathOf(MIGRATION, namespace, name)), { command });
}
