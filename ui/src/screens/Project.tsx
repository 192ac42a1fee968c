import { NAMESPACE, RESOURCE_QUOTA, ROLE_BINDING } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import type { Namespace, ResourceQuota, RoleBinding } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Empty, Waiting } from "../components/Empty.tsx";
import { Page } from "../components/Page.tsx";
import { t } from "../messages.ts";
import { href } from "../router.ts";
import { Members } from "./project/Members.tsx";
import { Quota } from "./project/Quota.tsx";

export function ProjectDetail({ words }: { words: string[] }) {
  const [, name] = words;
  const projects = useCollection<Namespace>(NAMESPACE, { fieldSelector: `metadata.name=${name}` });
  const bindings = useCollection<RoleBinding>(ROLE_BINDING, { namespace: name });
  const quotas = useCollection<ResourceQuota>(RESOURCE_QUOTA, { namespace: name });
  const crumbs = (
    <nav class="crumbs" aria-label={t("Where")}>
      <a href={href("/projects")}>{t("Projects")}</a>
    </nav>
  );
  if (!projects.items.get(name)) {
    const missing = projects.freshness.value === "live";
    return (
      <Page title={name} above={crumbs}>
        {missing ? <Empty icon="box" title={t("There is no project {name}", { name })} /> : <Waiting freshness={projects.freshness.value} error={projects.error.value} />}
      </Page>
    );
  }
  return (
    <Page title={name} above={crumbs} actions={<a class="button" href={href(`/machines?q=project:${name}`)}>{t("Show machines")}</a>}>
      <div class="cards two">
        {may("list", ROLE_BINDING.group, ROLE_BINDING.plural) && <Members project={name} bindings={[...bindings.items.values()]} />}
        {may("list", "", "resourcequotas") && <Quota project={name} quotas={[...quotas.items.values()]} />}
      </div>
    </Page>
  );
}
