// Deleting objects of any kind, with the command that does the same, and a way back where there is one.
import { remove } from "../api/http.ts";
import { kubectlName, pathOf, type Kind } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { copiesOf, takeBack } from "./undelete.ts";

/** Deletes an object and tells how it went; `shown` is what people call it. */
export async function deleteObject(kind: Kind, namespace: string | undefined, name: string, shown = name): Promise<boolean> {
  const command = `kubectl delete ${kubectlName(kind)} ${name}${namespace ? ` -n ${namespace}` : ""}`;
  const copies = await copiesOf(kind, namespace, name);
  const undo = copies && (() => void takeBack([{ ...copies, name: shown }]));
  const done = { title: t("Deleted: {name}", { name: shown }), undo };
  return perform(`${t("Delete")}: ${shown}`, () => remove(pathOf(kind, namespace, name)), { command }, () => done);
}

/** Why the user may not do something to objects of a kind; nothing if they may. */
export function notAllowed(verb: string, kind: Kind): string | undefined {
  return may(verb, kind.group, kind.plural) ? undefined : t("Not allowed: {verb} {resource}", { verb, resource: kind.plural });
}
