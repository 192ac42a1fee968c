// What the page is doing for its user: actions, bulk actions, uploads. Each has a result per item.
import { signal } from "@preact/signals";
import { t } from "../messages.ts";

export interface ActivityItem {
  name: string;
  state: "waiting" | "running" | "done" | "failed";
  message?: string;
}

export interface Activity {
  id: number;
  title: string;
  state: "running" | "done" | "failed";
  items: ActivityItem[];
  /** Of uploads: 0 to 1. */
  progress?: number;
  note?: string;
  cancel?: () => void;
  link?: { label: string; href: string };
  /** What does the same on a command line. */
  command?: string;
  /** Takes it back; offered for a while after it was done. */
  undo?: () => void;
}

export const activities = signal<Activity[]>([]);
let last = 0;
const PARALLEL = 4;
const SHOWN_FOR = 6000;
/** A message with something to choose, such as Undo or a link. */
const OFFERED_FOR = 20_000;
/** A message under the pointer or with the focus stays this much longer. */
const HELD_FOR = 2000;
/** The one that the pointer or the focus is on. */
let held: number | null = null;

export function hold(id: number | null): void {
  held = id;
}

export function dismiss(id: number): void {
  activities.value = activities.value.filter((one) => one.id !== id);
}

export function update(id: number, change: Partial<Activity>): void {
  activities.value = activities.value.map((one) => (one.id === id ? { ...one, ...change } : one));
  const offers = change.undo ?? activities.value.find((one) => one.id === id)?.link;
  if (change.state === "done") setTimeout(() => leave(id), offers ? OFFERED_FOR : SHOWN_FOR);
}

function leave(id: number): void {
  if (held === id) setTimeout(() => leave(id), HELD_FOR);
  else dismiss(id);
}

/** Takes back what was done last, if it can be. Returns whether there was something. */
export function undoLast(): boolean {
  const last = activities.value.findLast((one) => one.undo);
  if (last) undoOne(last);
  return last !== undefined;
}

export function undoOne({ id, undo }: Activity): void {
  hold(null);
  dismiss(id);
  undo?.();
}

export function begin(title: string, more: Partial<Activity> = {}): number {
  last += 1;
  activities.value = [...activities.value, { id: last, title, state: "running", items: [], ...more }];
  return last;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

type Outcome = Partial<Pick<Activity, "title" | "undo">>;

/** Does one thing, and tells how it went. Returns whether it worked. */
export async function perform(title: string, work: () => Promise<unknown>, more: Pick<Activity, "link" | "command"> = {}, done?: () => Outcome): Promise<boolean> {
  const id = begin(title, more);
  try {
    await work();
    update(id, { ...done?.(), state: "done" });
    return true;
  } catch (error) {
    update(id, { state: "failed", note: messageOf(error) });
    return false;
  }
}

/** Does the same to several things, a few at once; each has its own result. */
export async function performAll<R>(title: string, rows: R[], nameOf: (row: R) => string, work: (row: R) => Promise<unknown>, done?: () => Outcome) {
  const items: ActivityItem[] = rows.map((row) => ({ name: nameOf(row), state: "waiting" }));
  const id = begin(title, { items });
  const set = (index: number, change: Partial<ActivityItem>) => {
    items[index] = { ...items[index], ...change };
    update(id, { items: [...items] });
  };
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < rows.length; index = next++) {
      set(index, { state: "running" });
      try {
        await work(rows[index]);
        set(index, { state: "done" });
      } catch (error) {
        set(index, { state: "failed", message: messageOf(error) });
      }
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  const failed = items.filter((item) => item.state === "failed").length;
  const note = failed > 0 ? t("{failed} of {all} failed", { failed, all: items.length }) : undefined;
  update(id, { ...(failed < items.length ? done?.() : {}), state: failed > 0 ? "failed" : "done", note });
}
