// The versions of a machine's specification that the server keeps, and the changes between two. Pure.
import type { KubeObject } from "../api/objects.ts";
import type { ControllerRevision } from "../api/types.ts";
import { editable } from "./editable.ts";
import { toYaml } from "./yaml.ts";

/** On a version: the UID of its machine. */
export const HISTORY_LABEL = "sheaf.io/history-of";

type Spec = Record<string, unknown>;

export interface Version {
  number: number;
  by: string;
  at?: string;
  spec: Spec;
  /** The version before, if it is kept. */
  before?: Version;
}

/** The newest first. */
export function versionsOf(revisions: Iterable<ControllerRevision>): Version[] {
  const all = [...revisions].map((one): Version => {
    const { annotations = {}, creationTimestamp } = one.metadata;
    const by = annotations["sheaf.io/changed-by"] ?? "";
    const at = annotations["sheaf.io/changed-at"] ?? creationTimestamp;
    return { number: one.revision ?? 0, by, at, spec: (one.data?.spec ?? {}) as Spec };
  });
  all.sort((a, b) => b.number - a.number);
  return all.map((one, index) => ({ ...one, before: all[index + 1] }));
}

export interface Change {
  path: string;
  before: unknown;
  after: unknown;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

/** The fields that differ. Items of lists are compared by their names, where they have one. */
export function changesBetween(before: unknown, after: unknown, path = ""): Change[] {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  if (!isObject(before) || !isObject(after) || Array.isArray(before) !== Array.isArray(after)) return [{ path, before, after }];
  const [old, now] = [before, after].map((one) => (Array.isArray(one) ? byName(one) : one));
  const keys = new Set([...Object.keys(old), ...Object.keys(now)]);
  return [...keys].flatMap((key) => changesBetween(old[key], now[key], path === "" ? key : `${path}.${key}`));
}

function byName(list: unknown[]): Record<string, unknown> {
  return Object.fromEntries(list.map((one, index) => [isObject(one) && typeof one.name === "string" ? one.name : String(index), one]));
}

const LONGEST = 30;

function valueText(value: unknown): string {
  if (value === undefined) return "–";
  if (isObject(value)) return "…";
  const text = String(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}

/** `memory.guest: 2Gi → 4Gi`. */
export function changeText({ path, before, after }: Change): string {
  const place = path.split(".").slice(-2).join(".");
  return `${place}: ${valueText(before)} → ${valueText(after)}`;
}

/** Whether a machine runs is no part of what is restored. */
const OF_THE_MOMENT = ["running", "runStrategy"];

/** The YAML of a machine with the specification of a version. */
export function restoredYaml(machine: KubeObject, version: Version): string {
  const now = editable(machine) as { spec?: Spec };
  const spec = { ...version.spec };
  for (const field of OF_THE_MOMENT) {
    delete spec[field];
    if (now.spec?.[field] !== undefined) spec[field] = now.spec[field];
  }
  return toYaml({ ...now, spec });
}
