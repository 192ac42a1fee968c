// Deleting objects of any kind, with the command that does the same.
import { remove } from "../api/http.ts";
import { kubectlName, pathOf, type Kind } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";

/** Deletes an object and tells how it went; `shown` is what people call it. */
export function deleteObject(kind: Kind, namespace: string | undefined, name: string, shown = name): Promise<boolean> {
  const command = `kubectl delete ${kubectlName(kind)} ${name}${namespace ? ` -n ${namespace}` : ""}`;
  return perform(`${t("Delete")}: ${shown}`, () => remove(pathOf(kind, namespace, name)), { command });
}

/** Why the user may not do something to objects of a kind; nothing if they may. */
export function notAllowed(verb: string, kind: Kind): string | undefined {
  return may(verb, kind.group, kind.plural) ? undefined : t("Not allowed: {verb} {resource}", { verb, resource: kind.plural });
}
