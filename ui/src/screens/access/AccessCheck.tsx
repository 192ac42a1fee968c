import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { post } from "../../api/http.ts";
import { USER } from "../../api/kinds.ts";
import type { LocalUser } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Button } from "../../components/Button.tsx";
import { CopyLine } from "../../components/Copy.tsx";
import { Field } from "../../components/Field.tsx";
import { ErrorNote } from "../../components/Note.tsx";
import { Page } from "../../components/Page.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import { accessReview, type AccessQuestion } from "../../model/role.ts";

const VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"];
const RESOURCES = ["virtualmachines.kubevirt.io", "virtualmachines/start.subresources.kubevirt.io", "virtualmachineinstances/vnc.subresources.kubevirt.io", "virtualmachineimages.harvesterhci.io", "persistentvolumeclaims", "secrets", "nodes"];

interface Answer {
  question: AccessQuestion;
  allowed: boolean;
  reason: string;
}

/** `virtualmachines/start.subresources.kubevirt.io` in its parts: the group begins at the first dot. */
function partsOf(text: string): Pick<AccessQuestion, "group" | "resource"> {
  const dot = text.indexOf(".");
  return dot < 0 ? { resource: text, group: "" } : { resource: text.slice(0, dot), group: text.slice(dot + 1) };
}

/** What a user may do, and the binding that allows it. */
export function AccessCheck({ tabs }: { tabs: ComponentChildren }) {
  const users = useCollection<LocalUser>(USER);
  const [user, setUser] = useState("");
  const [groups, setGroups] = useState("");
  const [verb, setVerb] = useState("get");
  const [resource, setResource] = useState(RESOURCES[0]);
  const [namespace, setNamespace] = useState("default");
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [error, setError] = useState<unknown>(null);
  const ask = async () => {
    const question = { user, groups, verb, namespace, ...partsOf(resource) };
    setError(null);
    try {
      const review = await post<{ status: { allowed: boolean; reason?: string } }>("/apis/authorization.k8s.io/v1/subjectaccessreviews", accessReview(question));
      setAnswer({ question, allowed: review.status.allowed, reason: review.status.reason ?? "" });
    } catch (failure) {
      setAnswer(null);
      setError(failure);
    }
  };
  const missing = user === "" ? t("A user is missing") : resource === "" ? t("A resource is missing") : undefined;
  return (
    <Page title={t("Check access")}>
      {tabs}
      <section class="card">
        <div class="body stack">
          <form
            class="stack"
            onSubmit={(event) => {
              event.preventDefault();
              if (!missing) void ask();
            }}
          >
            <div class="fields">
              <Field label={t("User")}>
                <input class="input" list="checked-users" autoComplete="off" value={user} onInput={(event) => setUser(event.currentTarget.value)} />
              </Field>
              <Field label={t("Groups")} hint={t("Those of an identity provider, separated by commas.")}>
                <input class="input" autoComplete="off" value={groups} onInput={(event) => setGroups(event.currentTarget.value)} />
              </Field>
              <Field label={t("Verb")}>
                <select class="input" value={verb} onChange={(event) => setVerb(event.currentTarget.value)}>
                  {VERBS.map((one) => (
                    <option key={one}>{one}</option>
                  ))}
                </select>
              </Field>
              <Field label={t("Resource")}>
                <input class="input mono" list="checked-resources" autoComplete="off" value={resource} onInput={(event) => setResource(event.currentTarget.value.trim())} />
              </Field>
              <Field label={t("Project")} hint={t("Empty: in the whole cluster.")}>
                <input class="input" autoComplete="off" value={namespace} onInput={(event) => setNamespace(event.currentTarget.value.trim())} />
              </Field>
            </div>
            <datalist id="checked-users">
              {[...users.items.keys()].map((one) => (
                <option key={one} value={one} />
              ))}
            </datalist>
            <datalist id="checked-resources">
              {RESOURCES.map((one) => (
                <option key={one} value={one} />
              ))}
            </datalist>
            <div class="row">
              <Button submit look="primary" disabled={missing}>
                {t("Check")}
              </Button>
            </div>
          </form>
          <ErrorNote error={error} />
          {answer && <Verdict answer={answer} />}
        </div>
      </section>
    </Page>
  );
}

function Verdict({ answer: { allowed, question, reason } }: { answer: Answer }) {
  const resource = question.group === "" ? question.resource : `${question.resource.replace(/\/.*/, "")}.${question.group}`;
  const part = question.resource.includes("/") ? ` --subresource ${question.resource.replace(/^[^/]*\//, "")}` : "";
  const groups = question.groups.split(/[\s,]+/).filter((one) => one !== "").map((one) => ` --as-group ${one}`).join("");
  const where = question.namespace === "" ? " -A" : ` -n ${question.namespace}`;
  return (
    <div class="stack tight" role="status">
      <StatusMark status={allowed ? { tone: "ok", word: "Allowed" } : { tone: "bad", word: "Not allowed" }} pill />
      <span class="muted wrap">{reason || t("No role of the user allows it.")}</span>
      <CopyLine text={`kubectl auth can-i ${question.verb} ${resource}${part} --as ${question.user}${groups}${where}`} />
    </div>
  );
}
