// Objects as YAML for people.
import { parse, stringify } from "yaml";

export const toYaml = (value: unknown): string => stringify(value, { lineWidth: 0, aliasDuplicateObjects: false });

/** Reads one object; throws with the line that is wrong. */
export function fromYaml(text: string): Record<string, unknown> {
  const value: unknown = parse(text, { uniqueKeys: true });
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("The document is not an object.");
  return value as Record<string, unknown>;
}
