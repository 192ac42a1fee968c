// Objects without what the server keeps for itself. Pure.
import type { KubeObject } from "../api/objects.ts";

/** The part of an object that a person writes. */
export function editable(object: KubeObject): Record<string, unknown> {
  const { status: _, ...rest } = structuredClone(object) as KubeObject & { status?: unknown };
  const meta = rest.metadata as unknown as Record<string, unknown>;
  for (const field of ["managedFields", "uid", "creationTimestamp", "generation", "selfLink", "resourceVersion"]) delete meta[field];
  return rest as unknown as Record<string, unknown>;
}
