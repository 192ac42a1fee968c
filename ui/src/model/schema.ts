// Schemas of OpenAPI v3 as an editor asks about them: the fields at a path, their values, their
// descriptions. Pure; `$ref` is followed when it is asked for.

export interface Schema {
  $ref?: string;
  allOf?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  type?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  additionalProperties?: Schema | boolean;
  enum?: unknown[];
  "x-kubernetes-group-version-kind"?: { group: string; version: string; kind: string }[];
  "x-kubernetes-preserve-unknown-fields"?: boolean;
  "x-kubernetes-int-or-string"?: boolean;
  "x-kubernetes-embedded-resource"?: boolean;
}

export type Schemas = Record<string, Schema>;

/** A part of a path: the name of a field, or null for an item of a list. */
export type Step = string | null;

export interface Field {
  name: string;
  type: string;
  description: string;
  required: boolean;
  /** Whether its value is on lines of its own. */
  form: "scalar" | "object" | "list";
}

/** Accepts everything, and describes nothing. */
const ANY: Schema = {};
const DEPTH = 10;
const OF_EVERY_OBJECT = ["apiVersion", "kind", "metadata"];

/** The schema of a kind. */
export function rootOf(schemas: Schemas, group: string, version: string, kind: string): Schema | undefined {
  return Object.values(schemas).find((schema) =>
    schema["x-kubernetes-group-version-kind"]?.some((one) => one.group === group && one.version === version && one.kind === kind),
  );
}

/** The schema without references; what is said beside a reference wins. */
export function resolve(schema: Schema, schemas: Schemas): Schema {
  let whole = schema;
  for (let depth = 0; depth < DEPTH; depth++) {
    const { $ref, allOf, ...own } = whole;
    if ($ref) whole = { ...schemas[$ref.split("/").pop() ?? ""], ...own };
    else if (allOf?.length === 1) whole = { ...allOf[0], ...own };
    else return whole;
  }
  return ANY;
}

/** The schema of a field or an item; nothing if the field is unknown. */
export function child(parent: Schema, step: Step, schemas: Schemas): Schema | undefined {
  const schema = resolve(parent, schemas);
  if (step === null) return schema.items ?? ANY;
  const known = schema.properties?.[step];
  if (known) return known;
  if (typeof schema.additionalProperties === "object") return schema.additionalProperties;
  if (schema["x-kubernetes-embedded-resource"] && OF_EVERY_OBJECT.includes(step)) return ANY;
  const open = schema["x-kubernetes-preserve-unknown-fields"] || schema.additionalProperties === true;
  return open || !schema.properties ? ANY : undefined;
}

export function schemaAt(root: Schema, path: Step[], schemas: Schemas): Schema | undefined {
  let at: Schema | undefined = root;
  for (const step of path) at = at && child(at, step, schemas);
  return at && resolve(at, schemas);
}

/** `string`, `[]object`, `map[string]string`. */
export function typeText(schema: Schema, schemas: Schemas): string {
  const { type, items, additionalProperties, anyOf, oneOf, ...rest } = resolve(schema, schemas);
  if (type === "array") return `[]${typeText(items ?? ANY, schemas)}`;
  if (typeof additionalProperties === "object") return `map[string]${typeText(additionalProperties, schemas)}`;
  if (rest["x-kubernetes-int-or-string"]) return "integer or string";
  const several = (anyOf ?? oneOf ?? []).map((one) => one.type).filter(Boolean);
  return type ?? (several.join(" or ") || "object");
}

function formOf(schema: Schema, schemas: Schemas): Field["form"] {
  const { type, properties, additionalProperties } = resolve(schema, schemas);
  if (type === "array") return "list";
  return type === "object" || properties || typeof additionalProperties === "object" ? "object" : "scalar";
}

/** One field as a reader wants it described. */
export function fieldOf(parent: Schema, name: string, schemas: Schemas): Field | undefined {
  const schema = child(parent, name, schemas);
  if (!schema) return undefined;
  const required = resolve(parent, schemas).required?.includes(name) ?? false;
  const { description = "" } = resolve(schema, schemas);
  return { name, type: typeText(schema, schemas), description, required, form: formOf(schema, schemas) };
}

/** The fields that an object may have, the required ones first. */
export function fieldsOf(parent: Schema, schemas: Schemas): Field[] {
  const names = Object.keys(resolve(parent, schemas).properties ?? {});
  const fields = names.flatMap((name) => fieldOf(parent, name, schemas) ?? []);
  return fields.sort((a, b) => Number(b.required) - Number(a.required) || a.name.localeCompare(b.name));
}

/** The values that a scalar may have, where these are few. */
export function valuesOf(of: Schema, schemas: Schemas): string[] {
  const schema = resolve(of, schemas);
  if (schema.type === "boolean") return ["true", "false"];
  return (schema.enum ?? []).filter((one) => one !== null && one !== "").map(String);
}

/** The type or the values that a scalar has to have instead; nothing if it is valid. */
export function mismatch(of: Schema, value: unknown, schemas: Schemas): string | undefined {
  const schema = resolve(of, schemas);
  if (value === null || schema.anyOf || schema.oneOf || schema["x-kubernetes-int-or-string"]) return undefined;
  const is = {
    string: typeof value === "string",
    boolean: typeof value === "boolean",
    integer: typeof value === "number" && Number.isInteger(value),
    number: typeof value === "number",
    object: false,
    array: false,
  }[schema.type ?? ""];
  if (is === false) return schema.type;
  if (schema.enum && !schema.enum.includes(value)) return schema.enum.filter((one) => one !== "").join(", ");
  return undefined;
}
