// What every object has, and the few places where pages read one whose type is not generated.

export interface Meta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: { kind: string; name: string }[];
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
}

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Meta;
}

/** An object with the parts of a type, which the API may leave out. */
export type Read<T> = Omit<T, "metadata"> & KubeObject;

export const keyOf = (object: KubeObject): string =>
  object.metadata.namespace ? `${object.metadata.namespace}/${object.metadata.name}` : object.metadata.name;

export function condition(list: Condition[] | undefined, type: string): Condition | undefined {
  return list?.find((one) => one.type === type);
}
