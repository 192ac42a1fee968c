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
}

export const activities = signal<Activity[]>([]);
let last = 0;
const PARALLEL = 4;
const SHOWN_FOR = 6000;

export function dismiss(id: number): void {
  activities.value = activities.value.filter((one) => one.id !== id);
}

export function update(id: number, change: Partial<Activity>): void {
  activities.value = activities.value.map((one) => (one.id === id ? { ...one, ...change } : one));
  if (change.state === "done") setTimeout(() => dismiss(id), SHOWN_FOR);
}

export function begin(title: string, more: Partial<Activity> = {}): number {
  last += 1;
  activities.value = [...activities.value, { id: last, title, state: "running", items: [], ...more }];
  return last;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Does one thing, and tells how it went. Returns whether it worked. */
export async function perform(title: string, work: () => Promise<unknown>, more: Pick<Activity, "link" | "command"> = {}): Promise<boolean> {
  const id = begin(title, more);
  try {
    await work();
    update(id, { state: "done" });
    return true;
  } catch (error) {
    update(id, { state: "failed", note: messageOf(error) });
    return false;
  }
}

/** Does the same to several things, a few at once; each has its own result. */
export async function performAll<R>(title: string, rows: R[], nameOf: (row: R) => string, work: (row: R) => Promise<unknown>) {
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
  update(id, { state: failed > 0 ? "failed" : "done", note });
}
