// The path of a position in a YAML document, from the indentation of its lines, so that it is known while
// the document is being typed and is not valid. Pure.
import type { Step } from "./schema.ts";

interface Parts {
  /** The columns of `-`. */
  dashes: number[];
  /** The column of the key, or of the value after the dashes. */
  column: number;
  /** Without quotes; absent if there is no `key:`. */
  key?: string;
  /** The column after the key. */
  keyEnd: number;
  /** The text after `key:`, or after the dashes. */
  value: string;
  valueFrom: number;
}

export interface Cursor {
  kind: "key" | "value";
  /** Of the object that has the key, or of the value. */
  path: Step[];
  typed: string;
  /** The column where what is typed begins. */
  from: number;
  /** The keys beside the one that is typed. */
  siblings: string[];
}

const KEY = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#"'[\]{}&*!|>%@`-][^#]*?|-[^\s#][^#]*?)\s*:(?=\s|$)/;
const unquoted = (text: string) => (/^["']/.test(text) ? text.slice(1, -1) : text);
const withoutComment = (text: string) => text.replace(/(^|\s)#.*$/, "").trimEnd();

function partsOf(line: string): Parts {
  const lead = /^ *(?:- +)*(?:-$)?/.exec(line)?.[0] ?? "";
  const dashes = [...lead].flatMap((one, column) => (one === "-" ? [column] : []));
  const rest = line.slice(lead.length);
  const found = KEY.exec(rest);
  if (!found) return { dashes, column: lead.length, keyEnd: lead.length, value: rest, valueFrom: lead.length };
  const after = rest.slice(found[0].length);
  const valueFrom = lead.length + found[0].length + (after.length - after.trimStart().length);
  return { dashes, column: lead.length, key: unquoted(found[1]), keyEnd: lead.length + found[1].length, value: after.trim(), valueFrom };
}

const isEmpty = (line: string) => /^\s*(#.*)?$/.test(line);
/** Whether the lines below a key are its fields or items. */
const opens = (value: string) => /^([&!]\S+\s*)*$/.test(withoutComment(value));

/** The column at which the line after this one begins, if a new line is begun at its end. */
export function indentAfter(line: string): number {
  if (isEmpty(line)) return line.length - line.trimStart().length;
  const { key, value, column } = partsOf(line);
  return key !== undefined && (opens(value) || /^[|>]/.test(value)) ? column + 2 : column;
}

/** The path of what begins at a column; null inside of texts, where nothing is known. */
function parents(lines: string[], row: number, column: number): Step[] | null {
  const path: Step[] = [];
  // A parent key begins before `key`, the dash of a list around before `dash`.
  let limit = { key: column, dash: column };
  const takeDashes = (dashes: number[]) => {
    for (const at of [...dashes].reverse()) {
      if (at >= limit.dash) continue;
      path.unshift(null);
      limit = { key: at + 1, dash: at };
    }
  };
  takeDashes(partsOf(lines[row]).dashes);
  for (let above = row - 1; above >= 0 && limit.key > 0; above--) {
    const line = lines[above];
    if (isEmpty(line)) continue;
    if (line.startsWith("---")) break;
    const parts = partsOf(line);
    if (parts.key !== undefined && parts.column < limit.key) {
      if (!opens(parts.value)) return null;
      path.unshift(parts.key);
      limit = { key: parts.column, dash: parts.column };
    } else if (parts.key === undefined && parts.column < limit.key && parts.value !== "") {
      return null;
    }
    takeDashes(parts.dashes);
  }
  return path;
}

function siblingsOf(lines: string[], row: number, column: number): string[] {
  const found: string[] = [];
  const follow = (from: number, by: 1 | -1) => {
    for (let at = from; at >= 0 && at < lines.length; at += by) {
      if (isEmpty(lines[at])) continue;
      const parts = partsOf(lines[at]);
      const begins = parts.dashes[0] ?? parts.column;
      // The first line of an item has its dash before the key.
      if (parts.column === column && parts.key !== undefined && (begins === column || by === -1)) found.push(parts.key);
      if (begins < column) return;
    }
  };
  if (partsOf(lines[row]).dashes.length === 0) follow(row - 1, -1);
  follow(row + 1, 1);
  return found;
}

/** The key or the value that is being typed at a column of a row. */
export function cursorAt(text: string, row: number, column: number): Cursor | null {
  const lines = text.split("\n");
  const before = lines[row].slice(0, column);
  if (before !== withoutComment(before) && /#/.test(before)) return null;
  const parts = partsOf(before);
  const path = parents(lines, row, parts.column);
  if (!path) return null;
  if (parts.key !== undefined) {
    if (/^["'[{|>&*!]/.test(parts.value)) return null;
    return { kind: "value", path: [...path, parts.key], typed: parts.value, from: Math.min(parts.valueFrom, column), siblings: [] };
  }
  return { kind: "key", path, typed: parts.value, from: parts.column, siblings: siblingsOf(lines, row, parts.column) };
}

/** The key at a column of a row, for its description. */
export function keyAt(text: string, row: number, column: number): { path: Step[]; name: string; from: number; to: number } | null {
  const lines = text.split("\n");
  const { key, column: from, keyEnd: to } = partsOf(lines[row]);
  if (key === undefined || column < from || column > to) return null;
  const path = parents(lines, row, from);
  return path && { path, name: key, from, to };
}
