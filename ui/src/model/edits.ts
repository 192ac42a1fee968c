// What was saved in this tab, so that it can be taken back: the texts before each save.
import { signal } from "@preact/signals";

export interface Edit {
  /** The path of the object. */
  path: string;
  /** When it was saved, in milliseconds. */
  at: number;
  /** The YAML before. */
  before: string;
}

const KEY = "edits";
const KEPT = 20;

function load(): Edit[] {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "[]") as Edit[];
  } catch {
    return [];
  }
}

export const edits = signal<Edit[]>(load());

/** Keeps what an object was before it was saved. Secrets are not kept. */
export function keepEdit(edit: Edit): void {
  if (/\/secrets\//.test(edit.path)) return;
  edits.value = [edit, ...edits.value].slice(0, KEPT);
  try {
    sessionStorage.setItem(KEY, JSON.stringify(edits.value));
  } catch {
    // A full or forbidden storage keeps them until the page is closed.
  }
}

/** Versions of an object, the newest first. */
export const editsOf = (path: string): Edit[] => edits.value.filter((one) => one.path === path);
