// What can be done to machines: one list for buttons, menus, the palette and the keyboard.
import { FIELD_MANAGER, mergePatch, post, put, remove } from "../api/http.ts";
import { CLONE, INSTANCE, MACHINE, pathOf, SNAPSHOT, subresource } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import { confirm, type Answer, type Question } from "../components/Confirm.tsx";
import type { IconName } from "../components/Icon.tsx";
import { plural, t } from "../messages.ts";
import { perform, performAll } from "../model/activity.ts";
import { claimsOf, type MachineRow } from "../model/machine.ts";
import { invalidName } from "../model/name.ts";
import { machinePath } from "../router.ts";
import { backupOf, createBackup } from "./backup.tsx";
import { copiesOf, takeBack, type Copies } from "./undelete.ts";
import { migrate, migrationQuestion, migrationRefusal } from "./migration.tsx";

export interface MachineAction {
  id: string;
  label: string;
  icon: IconName;
  /** A key, while a row has the focus. */
  key?: string;
  danger?: boolean;
  separated?: boolean;
  /** Whether it can be done now; if not, why. */
  refusal: (row: MachineRow) => string | undefined;
  /** Asked before; hands back what was chosen. */
  question?: (rows: MachineRow[]) => Question | Promise<Question>;
  run: (row: MachineRow, answer: Answer) => Promise<unknown>;
  /** Reads what is needed to take it back, before it is done. */
  copies?: (row: MachineRow, answer: Answer) => Promise<Copies | undefined>;
  /** The same with kubectl or virtctl. */
  command: (row: MachineRow) => string;
}

const stopped = (row: MachineRow) => !row.instance;
const paused = (row: MachineRow) => row.status.word === "Paused";
const running = (row: MachineRow) => row.instance?.status?.phase === "Running";
const ifRunning = (row: MachineRow) => (running(row) ? undefined : t("The machine does not run"));

const ofMachine = (row: MachineRow, verb: string, body: unknown = {}) =>
  put(subresource(MACHINE, row.namespace, row.name, verb), body);
const ofInstance = (row: MachineRow, verb: string, body: unknown = {}) =>
  put(subresource(INSTANCE, row.namespace, row.name, verb), body);
const virtctl = (verb: string) => (row: MachineRow) => `virtctl ${verb} ${row.name} -n ${row.namespace}`;

/** `web-20261116-183000`: fixed names, so that a request that is sent twice is noticed. */
export function stamp(): string {
  return new Date().toISOString().slice(0, 19).replace(/[-:]/g, "").replace("T", "-");
}

const snapshotOf = (row: MachineRow, name: string, memory = false) => ({
  apiVersion: "snapshot.kubevirt.io/v1beta1", kind: "VirtualMachineSnapshot",
  metadata: { name, namespace: row.namespace },
  spec: { source: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: row.name }, ...(memory ? { memory } : {}) },
});

export function takeSnapshot(row: MachineRow, name: string, memory = false) {
  return post(pathOf(SNAPSHOT, row.namespace), snapshotOf(row, name, memory), { query: { fieldManager: FIELD_MANAGER } });
}

async function deleteMachine(row: MachineRow, { option: withDisks }: Answer): Promise<void> {
  const path = pathOf(MACHINE, row.namespace, row.name);
  const claims = [...claimsOf(row.machine).values()];
  if (withDisks && claims.length > 0) {
    // The server removes these claims with the machine.
    await mergePatch(path, { metadata: { annotations: { "harvesterhci.io/removedPersistentVolumeClaims": claims.join(",") } } });
  }
  await remove(path, { propagationPolicy: "Foreground", preconditions: { uid: row.machine.metadata.uid } });
}

function cloneMachine(row: MachineRow, { text: target }: Answer): Promise<unknown> {
  const body = {
    apiVersion: "clone.kubevirt.io/v1beta1", kind: "VirtualMachineClone",
    metadata: { name: target, namespace: row.namespace },
    spec: {
      source: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: row.name },
      target: { apiGroup: "kubevirt.io", kind: "VirtualMachine", name: target },
    },
  };
  return post(pathOf(CLONE, row.namespace), body, { query: { fieldManager: FIELD_MANAGER } });
}

const names = (rows: MachineRow[]) => (rows.length === 1 ? rows[0].name : plural(rows.length, "machine"));

export const MACHINE_ACTIONS: MachineAction[] = [
  {
    id: "start", label: "Start", icon: "play", key: "s",
    refusal: (row) => (stopped(row) ? undefined : t("The machine is not stopped")),
    run: (row) => ofMachine(row, "start"), command: virtctl("start"),
  },
  {
    id: "stop", label: "Stop", icon: "power", key: "S",
    refusal: (row) => (stopped(row) ? t("The machine is stopped already") : undefined),
    run: (row) => ofMachine(row, "stop"), command: virtctl("stop"),
  },
  {
    id: "restart", label: "Restart", icon: "refresh", key: "r", refusal: ifRunning,
    question: (rows) => ({ title: t("Restart {names}?", { names: names(rows) }), body: <p>{t("Guests are shut down and started again.")}</p>, action: t("Restart") }),
    run: (row) => ofMachine(row, "restart"), command: virtctl("restart"),
  },
  {
    id: "pause", label: "Pause", icon: "pause",
    refusal: (row) => (paused(row) ? t("The machine is paused already") : ifRunning(row)),
    run: (row) => ofInstance(row, "pause"), command: virtctl("pause vm"),
  },
  {
    id: "unpause", label: "Resume", icon: "play",
    refusal: (row) => (paused(row) ? undefined : t("The machine is not paused")),
    run: (row) => ofInstance(row, "unpause"), command: virtctl("unpause vm"),
  },
  {
    id: "snapshot", label: "Take snapshot", icon: "camera", separated: true, refusal: () => undefined,
    run: (row) => takeSnapshot(row, `${row.name}-${stamp()}`),
    command: (row) => `kubectl create -f - <<< '${JSON.stringify(snapshotOf(row, `${row.name}-${stamp()}`))}'`,
  },
  {
    id: "backup", label: "Back up", icon: "history", refusal: () => undefined,
    run: (row) => createBackup(row.namespace, row.name, `${row.name}-${stamp()}`),
    command: (row) => `kubectl create -f - <<< '${JSON.stringify(backupOf(row.namespace, row.name, `${row.name}-${stamp()}`))}'`,
  },
  {
    id: "clone", label: "Clone", icon: "copy", refusal: () => undefined, run: cloneMachine,
    question: ([row]) => ({
      title: t("Clone {name}?", { name: row.name }), action: t("Clone"),
      body: <p>{t("A new machine with copies of the disks. It does not start by itself.")}</p>,
      text: { label: t("Name of the new machine"), initially: `${row.name}-clone`, invalid: invalidName },
    }),
    command: (row) => `virtctl create clone --source-name ${row.name} -n ${row.namespace} | kubectl create -f -`,
  },
  {
    id: "migrate", label: "Migrate", icon: "move", refusal: (row) => ifRunning(row) ?? migrationRefusal(row),
    question: migrationQuestion, run: migrate, command: virtctl("migrate"),
  },
  {
    id: "reset", label: "Reset", icon: "zap", separated: true, refusal: ifRunning,
    question: (rows) => ({
      title: t("Reset {names}?", { names: names(rows) }), action: t("Reset"), danger: true,
      body: <p>{t("As the reset button of a computer: guests do not shut down, and unwritten data is lost.")}</p>,
    }),
    run: (row) => ofInstance(row, "reset"), command: virtctl("reset"),
  },
  {
    id: "power-off", label: "Power off", icon: "stop", danger: true,
    refusal: (row) => (stopped(row) ? t("The machine is stopped already") : undefined),
    question: (rows) => ({
      title: t("Power off {names}?", { names: names(rows) }), action: t("Power off"), danger: true,
      body: <p>{t("As pulling the plug: guests do not shut down, and unwritten data is lost.")}</p>,
    }),
    run: (row) => ofMachine(row, "stop", { gracePeriod: 0 }), command: virtctl("stop --force --grace-period 0"),
  },
  {
    id: "delete", label: "Delete", icon: "trash", danger: true, separated: true, refusal: () => undefined,
    question: (rows) => ({
      title: t("Delete {names}?", { names: names(rows) }), action: t("Delete"), danger: true,
      option: { label: t("Delete the disks as well"), initially: false },
      type: rows.length === 1 ? rows[0].name : String(rows.length),
      body: (
        <div class="stack tight">
          <p>{t("The machine and its configuration are removed. Disks stay unless you choose otherwise.")}</p>
          <ul>
            {rows.slice(0, 8).map((row) => (
              <li key={row.key}>
                <b>{row.name}</b> <span class="muted">{[...claimsOf(row.machine).values()].join(", ")}</span>
              </li>
            ))}
            {rows.length > 8 && <li class="muted">{t("and {n} more", { n: rows.length - 8 })}</li>}
          </ul>
        </div>
      ),
    }),
    copies: async (row, { option: withDisks }) => (withDisks && claimsOf(row.machine).size > 0 ? undefined : copiesOf(MACHINE, row.namespace, row.name)),
    run: deleteMachine, command: (row) => `kubectl delete vm ${row.name} -n ${row.namespace}`,
  },
];

/** What the roles of the user lack for an action, where that is known. */
function missingRight(action: MachineAction): string | undefined {
  const needs: Record<string, [string, string, string]> = {
    delete: ["delete", "kubevirt.io", "virtualmachines"],
    snapshot: ["create", "snapshot.kubevirt.io", "virtualmachinesnapshots"],
    backup: ["create", "harvesterhci.io", "virtualmachinebackups"],
    clone: ["create", "clone.kubevirt.io", "virtualmachineclones"],
    start: ["update", "subresources.kubevirt.io", "virtualmachines/start"],
    stop: ["update", "subresources.kubevirt.io", "virtualmachines/stop"],
    restart: ["update", "subresources.kubevirt.io", "virtualmachines/restart"],
    "power-off": ["update", "subresources.kubevirt.io", "virtualmachines/stop"],
    pause: ["update", "subresources.kubevirt.io", "virtualmachineinstances/pause"],
    unpause: ["update", "subresources.kubevirt.io", "virtualmachineinstances/unpause"],
    reset: ["update", "subresources.kubevirt.io", "virtualmachineinstances/reset"],
    migrate: ["create", "kubevirt.io", "virtualmachineinstancemigrations"],
  };
  const need = needs[action.id];
  if (!need || may(...need)) return undefined;
  return t("Not allowed: {verb} {resource}", { verb: need[0], resource: need[2] });
}

export const refusalOf = (action: MachineAction, row: MachineRow): string | undefined => missingRight(action) ?? action.refusal(row);

/** Asks where that is due, and does it to one machine or to several. */
export async function runAction(action: MachineAction, rows: MachineRow[], before?: () => void): Promise<void> {
  const fit = rows.filter((row) => refusalOf(action, row) === undefined);
  if (fit.length === 0) return;
  const question = (await action.question?.(fit)) ?? (rows.length > 1 ? bulkQuestion(action, fit, rows.length) : undefined);
  const answer = question ? await confirm(question) : { option: false, text: "", choice: "" };
  if (!answer) return;
  before?.();
  const copies: Copies[] = [];
  const work = async (row: MachineRow) => {
    const own = await action.copies?.(row, answer);
    await action.run(row, answer);
    if (own) copies.push(own);
  };
  const done = () => (copies.length > 0 ? { undo: () => void takeBack(copies) } : {});
  if (fit.length === 1) {
    const [row] = fit;
    const link = action.id === "snapshot" ? { label: t("Show snapshots"), href: machinePath(row.namespace, row.name, "snapshots") } : undefined;
    await perform(`${t(action.label)}: ${row.name}`, () => work(row), { link, command: action.command(row) }, done);
  } else {
    await performAll(`${t(action.label)}: ${plural(fit.length, "machine")}`, fit, (row) => row.name, work, done);
  }
}

function bulkQuestion(action: MachineAction, fit: MachineRow[], all: number): Question {
  const skipped = all - fit.length;
  return {
    title: `${t(action.label)}: ${plural(fit.length, "machine")}`,
    action: t(action.label),
    body: (
      <div class="stack tight">
        {skipped > 0 && <p class="muted">{t("{n} of those selected are left out: it does not apply to them now.", { n: skipped })}</p>}
        <p class="wrap">{fit.slice(0, 40).map((row) => row.name).join(", ")}{fit.length > 40 ? ` +${fit.length - 40}` : ""}</p>
      </div>
    ),
  };
}
