// Schemas of kinds from the server's OpenAPI documents: read when they are first needed, and kept
// while the page is open. The browser asks again with the ETag of the document that it has.
import type { Schemas } from "../model/schema.ts";
import { get } from "./http.ts";
import type { Kind } from "./kinds.ts";

const known = new Map<string, Promise<Schemas>>();

/** The schemas of a kind's group and version, by their names. */
export function schemasOf({ group, version }: Kind): Promise<Schemas> {
  const path = `/openapi/v3/${group === "" ? "api" : `apis/${group}`}/${version}`;
  let wanted = known.get(path);
  if (!wanted) {
    wanted = get<{ components?: { schemas?: Schemas } }>(path).then((document) => document.components?.schemas ?? {});
    wanted.catch(() => known.delete(path));
    known.set(path, wanted);
  }
  return wanted;
}
