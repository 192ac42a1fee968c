import type { VNode } from "preact";
import { CLUSTER_ROLE } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import { t } from "../messages.ts";
import { href } from "../router.ts";
import { AccessCheck } from "./access/AccessCheck.tsx";
import { RoleList } from "./access/RoleList.tsx";
import { UserList } from "./access/UserList.tsx";

const PARTS = [
  { id: "", label: "Users", Part: UserList, shown: () => true },
  { id: "roles", label: "Roles", Part: RoleList, shown: () => may("list", CLUSTER_ROLE.group, CLUSTER_ROLE.plural) },
  { id: "check", label: "Check access", Part: AccessCheck, shown: () => may("create", "authorization.k8s.io", "subjectaccessreviews") },
];

/** Who may do what in the whole cluster. */
export function Users({ words }: { words: string[] }): VNode {
  const shown = PARTS.filter((one) => one.shown());
  const { Part, id } = shown.find((one) => one.id === words[1]) ?? PARTS[0];
  const tabs = (
    <nav class="tabs" aria-label={t("Parts of the page")}>
      {shown.map((one) => (
        <a key={one.id} href={href(one.id ? `/users/${one.id}` : "/users")} aria-current={one.id === id ? "page" : undefined}>
          {t(one.label)}
        </a>
      ))}
    </nav>
  );
  return <Part tabs={tabs} />;
}
