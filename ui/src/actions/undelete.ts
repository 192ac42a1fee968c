// Taking back a delete: what is needed is read before, and created again when the user asks for it.
import { ApiError, FIELD_MANAGER, get, post } from "../api/http.ts";
import { kubectlName, MACHINE, pathOf, SECRET, TEMPLATE, TEMPLATE_VERSION, type Kind } from "../api/kinds.ts";
import type { KubeObject } from "../api/objects.ts";
import { may } from "../api/session.ts";
import { t } from "../messages.ts";
import { perform, performAll } from "../model/activity.ts";
import { canReturn, definitionOf, secretsOf } from "../model/undelete.ts";

/** The objects to create again, in this order. */
export interface Copies {
  name: string;
  objects: { kind: Kind; object: KubeObject; uid?: string }[];
}

const METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/** Machines are gone when their guests have shut down. */
const GONE_WITHIN = 180_000;
const PAUSE = 500;

/** Reads what a delete will remove; nothing if it cannot be taken back, or not by this user. */
export async function copiesOf(kind: Kind, namespace: string | undefined, name: string): Promise<Copies | undefined> {
  if (!may("create", kind.group, kind.plural)) return undefined;
  const apiVersion = kind.group === "" ? kind.version : `${kind.group}/${kind.version}`;
  try {
    const read = await get<KubeObject>(pathOf(kind, namespace, name));
    const object = { ...read, apiVersion, kind: kind.kind };
    if (!canReturn(kind, object)) return undefined;
    if (kubectlName(kind) === kubectlName(MACHINE) && (await ownsSecrets(object))) return undefined;
    const first = { kind, object: definitionOf(object), uid: object.metadata.uid };
    const below = kubectlName(kind) === kubectlName(TEMPLATE) ? await versionsOf(object) : [];
    return { name, objects: [first, ...below] };
  } catch (failure) {
    // Without a copy there is no way back, and the delete goes on without.
    if (failure instanceof ApiError) return undefined;
    throw failure;
  }
}

/** Whether a Secret goes with the machine: it could not be created again. */
async function ownsSecrets(machine: KubeObject): Promise<boolean> {
  const { uid, namespace } = machine.metadata;
  const own = (name: string) =>
    get<{ metadata: { ownerReferences?: { uid?: string }[] } }>(pathOf(SECRET, namespace, name), { accept: METADATA_ONLY })
      .then(({ metadata }) => metadata.ownerReferences?.some((one) => one.uid === uid) ?? false)
      .catch((failure: unknown) => !(failure instanceof ApiError && failure.status === 404));
  return (await Promise.all(secretsOf(machine).map(own))).includes(true);
}

/** A template's versions are deleted with it. They are numbered again in this order. */
async function versionsOf(template: KubeObject): Promise<Copies["objects"]> {
  const { namespace, name } = template.metadata;
  type Version = KubeObject & { spec?: { templateId?: string }; status?: { version?: number } };
  const { items } = await get<{ items: Version[] }>(pathOf(TEMPLATE_VERSION, namespace));
  const own = items.filter((one) => one.spec?.templateId === `${namespace}/${name}`).sort((a, b) => (a.status?.version ?? 0) - (b.status?.version ?? 0));
  const { group, version, kind } = TEMPLATE_VERSION;
  return own.map((one) => ({ kind: TEMPLATE_VERSION, object: definitionOf({ ...one, apiVersion: `${group}/${version}`, kind }), uid: one.metadata.uid }));
}

/** Whether the old object is still there, and on its way out. */
async function isGoing(path: string, uid: string | undefined): Promise<boolean> {
  try {
    return (await get<KubeObject>(path)).metadata.uid === uid;
  } catch (failure) {
    return failure instanceof ApiError && failure.status === 404;
  }
}

async function create({ kind, object, uid }: Copies["objects"][number]): Promise<void> {
  const { namespace, name } = object.metadata;
  const until = Date.now() + GONE_WITHIN;
  for (;;) {
    try {
      await post(pathOf(kind, namespace), object, { query: { fieldManager: FIELD_MANAGER } });
      return;
    } catch (failure) {
      const waits = failure instanceof ApiError && failure.status === 409 && Date.now() < until;
      if (!waits || !(await isGoing(pathOf(kind, namespace, name), uid))) throw failure;
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }
}

async function createAll({ objects }: Copies): Promise<void> {
  for (const one of objects) await create(one);
}

/** Creates again what was deleted, and tells how it went. */
export async function takeBack(all: Copies[]): Promise<void> {
  if (all.length === 1) {
    const [{ name }] = all;
    await perform(t("Create again: {name}", { name }), () => createAll(all[0]), {}, () => ({ title: t("Created again: {name}", { name }) }));
  } else {
    await performAll(t("Create {n} objects again", { n: all.length }), all, (one) => one.name, createAll);
  }
}
