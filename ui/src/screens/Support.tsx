import { deleteObject } from "../actions/remove.ts";
import { useState } from "preact/hooks";
import { FIELD_MANAGER, post } from "../api/http.ts";
import { pathOf, SUPPORT_BUNDLE } from "../api/kinds.ts";
import { may, serverVersion } from "../api/session.ts";
import type { SupportBundle } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { CopyLine } from "../components/Copy.tsx";
import { Field } from "../components/Field.tsx";
import { FormDialog } from "../components/FormDialog.tsx";
import { Page } from "../components/Page.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import type { Status } from "../model/status.ts";
import { stamp } from "../actions/machine.tsx";

const NAMESPACE = "harvester-system";

function bundleStatus(bundle: SupportBundle): Status {
  const { state } = bundle.status ?? {};
  if (state === "ready") return { tone: "ok", word: "Ready" };
  return state === "error" ? { tone: "bad", word: "Failed" } : { tone: "busy", word: "Preparing" };
}

export function Support() {
  const bundles = useCollection<SupportBundle>(SUPPORT_BUNDLE, { namespace: NAMESPACE });
  const [asking, setAsking] = useState(false);
  const mayDelete = may("delete", SUPPORT_BUNDLE.group, SUPPORT_BUNDLE.plural);
  return (
    <Page title={t("Support")}>
      <div class="cards two">
        <section class="card">
          <header>
            <h2>{t("Support bundle")}</h2>
            {may("create", SUPPORT_BUNDLE.group, SUPPORT_BUNDLE.plural) && (
              <Button small look="primary" icon="plus" onClick={() => setAsking(true)}>
                {t("Create bundle")}
              </Button>
            )}
          </header>
          <div class="body stack">
            <p>
              {t("A ZIP file for those who help you: the objects of the cluster and of the namespaces of the system as YAML, and the hardware of the host that answers. Secrets and passwords are not in it. It is collected while you download it, with your rights.")}
            </p>
            <CopyLine text={'sheaf support-bundle --description "what is wrong"'} />
          </div>
          <ul class="list">
            {[...bundles.items.values()].map((one) => (
              <li key={one.metadata.name} class="row wraps">
                <StatusMark status={bundleStatus(one)} />
                <span class="grow wrap">
                  <b>{one.metadata.name}</b> <span class="muted">{one.spec?.description}</span>
                </span>
                <span class="faint">
                  <Age time={one.metadata.creationTimestamp} />
                </span>
                {one.status?.state === "ready" && (
                  <a class="button small" download href={`/v1/harvester/supportbundles/${encodeURIComponent(one.metadata.name)}/download`}>
                    {t("Download")}
                  </a>
                )}
                {mayDelete && (
                  <Button small look="quiet" icon="trash" label={t("Delete {name}", { name: one.metadata.name })} onClick={() => void deleteObject(SUPPORT_BUNDLE, NAMESPACE, one.metadata.name)} />
                )}
              </li>
            ))}
          </ul>
        </section>
        <section class="card">
          <header>
            <h2>{t("About")}</h2>
          </header>
          <div class="body stack">
            <dl class="facts">
              <dt>{t("Version of the API")}</dt>
              <dd>{serverVersion.value || "–"}</dd>
              <dt>{t("Licence")}</dt>
              <dd>
                Apache-2.0, <a href="/dashboard/licences.txt">{t("licences of others")}</a>
              </dd>
            </dl>
            <CopyLine text="sheaf version" />
          </div>
        </section>
      </div>
      {asking && <NewBundle onClose={() => setAsking(false)} />}
    </Page>
  );
}

function NewBundle({ onClose }: { onClose: () => void }) {
  const [description, setDescription] = useState("");
  const [issue, setIssue] = useState("");
  const submit = () =>
    post(
      pathOf(SUPPORT_BUNDLE, NAMESPACE),
      { apiVersion: "harvesterhci.io/v1beta1", kind: "SupportBundle", metadata: { name: `bundle-${stamp()}`, namespace: NAMESPACE }, spec: { description, ...(issue ? { issueURL: issue } : {}) } },
      { query: { fieldManager: FIELD_MANAGER } },
    );
  return (
    <FormDialog title={t("Create a support bundle")} action={t("Create")} missing={description.trim() === "" ? t("A description is missing") : undefined} submit={submit} onClose={onClose}>
      <Field label={t("What is wrong")}>
        <textarea class="input" rows={3} value={description} onInput={(event) => setDescription(event.currentTarget.value)} />
      </Field>
      <Field label={t("Address of the report")} hint={t("If there is one.")}>
        <input class="input" type="url" value={issue} onInput={(event) => setIssue(event.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}
