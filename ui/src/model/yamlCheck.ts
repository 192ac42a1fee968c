// Violations of a schema in a YAML document, with their places. Pure.
import { isMap, isScalar, isSeq, parseDocument, type Node } from "yaml";
import { t } from "../messages.ts";
import { child, mismatch, type Schema, type Schemas } from "./schema.ts";

export interface Problem {
  from: number;
  to: number;
  message: string;
}

const MOST = 50;

/** Written by the server; it is not checked. */
const OF_THE_SERVER = new Set(["status", "metadata.managedFields"]);

export function problemsOf(text: string, root: Schema, schemas: Schemas): Problem[] {
  const found: Problem[] = [];
  const add = (range: readonly number[] | null | undefined, message: string) => {
    if (range && found.length < MOST) found.push({ from: range[0], to: Math.max(range[1], range[0] + 1), message });
  };
  const walk = (node: unknown, schema: Schema, path: string) => {
    if (isMap(node)) {
      for (const { key, value } of node.items) {
        if (!isScalar(key)) continue;
        const name = String(key.value);
        const where = path === "" ? name : `${path}.${name}`;
        if (OF_THE_SERVER.has(where)) continue;
        const inner = child(schema, name, schemas);
        if (inner) walk(value, inner, where);
        else add(key.range, t("Unknown field {path}", { path: where }));
      }
    } else if (isSeq(node)) {
      const inner = child(schema, null, schemas);
      node.items.forEach((item, index) => inner && walk(item, inner, `${path}[${index}]`));
    } else if (isScalar(node)) {
      const wanted = mismatch(schema, node.value, schemas);
      if (wanted) add((node as Node).range, t("{path} has to be: {wanted}", { path, wanted }));
    }
  };
  const document = parseDocument(text, { prettyErrors: false, uniqueKeys: true });
  for (const { pos, message } of document.errors) {
    const word = /^[^\s:]+/.exec(text.slice(pos[0]))?.[0] ?? "";
    add([pos[0], Math.max(pos[1], pos[0] + word.length)], message);
  }
  walk(document.contents, root, "");
  return found.sort((a, b) => a.from - b.from);
}
