// Objects as YAML for people: without what the server keeps for itself.
import { parse, stringify } from "yaml";
import type { KubeObject } from "../api/objects.ts";

/** The part of an object that a person writes. */
export function editable(object: KubeObject): Record<string, unknown> {
  const { status: _, ...rest } = structuredClone(object) as KubeObject & { status?: unknown };
  const meta = rest.metadata as unknown as Record<string, unknown>;
  for (const field of ["managedFields", "uid", "creationTimestamp", "generation", "selfLink", "resourceVersion"]) delete meta[field];
  return rest as unknown as Record<string, unknown>;
}

export const toYaml = (value: unknown): string => stringify(value, { lineWidth: 0, aliasDuplicateObjects: false });

/** Reads one object; throws with the line that is wrong. */
export function fromYaml(text: string): Record<string, unknown> {
  const value: unknown = parse(text, { uniqueKeys: true });
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("The document is not an object.");
  return value as Record<string, unknown>;
}
