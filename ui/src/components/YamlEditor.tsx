// An object as YAML: edited, tried without effect, shown as a difference, then applied.
import { useEffect, useState } from "preact/hooks";
import { FIELD_MANAGER, request, warnings } from "../api/http.ts";
import { kubectlName, pathOf, type Kind } from "../api/kinds.ts";
import type { KubeObject } from "../api/objects.ts";
import { t } from "../messages.ts";
import { begin, update } from "../model/activity.ts";
import { editable } from "../model/editable.ts";
import { editsOf, keepEdit } from "../model/edits.ts";
import { exactTime } from "../model/quantity.ts";
import { fromYaml, toYaml } from "../model/yaml.ts";
import { Button } from "./Button.tsx";
import { CopyButton } from "./Copy.tsx";
import { Dialog } from "./Dialog.tsx";
import { Diff } from "./Diff.tsx";
import { Editor } from "./Editor.tsx";
import { Icon } from "./Icon.tsx";
import { Menu } from "./Menu.tsx";
import { ErrorNote, Note } from "./Note.tsx";

interface Props {
  kind: Kind;
  object: KubeObject;
  readOnly?: boolean;
  /** A text to begin with instead; its difference is shown at once. */
  proposal?: string;
  /** Called when the proposal was saved or given up. */
  onDone?: () => void;
}

interface Review {
  body: Record<string, unknown>;
  after: string;
  warnings: string[];
}

export function YamlEditor({ kind, object, readOnly = false, proposal, onDone }: Props) {
  const [base, setBase] = useState(object);
  const [text, setText] = useState(() => proposal ?? toYaml(editable(object)));
  const [error, setError] = useState<unknown>(null);
  const [review, setReview] = useState<Review | null>(null);
  const saved = toYaml(editable(base));
  const dirty = text !== saved;
  const path = pathOf(kind, base.metadata.namespace, base.metadata.name);
  // While nothing was typed, the text follows the object.
  useEffect(() => {
    if (dirty || object.metadata.resourceVersion === base.metadata.resourceVersion) return;
    setBase(object);
    setText(toYaml(editable(object)));
  }, [object]);
  const write = (body: Record<string, unknown>, dryRun?: "All") =>
    request<KubeObject>("PUT", path, { body, query: { fieldManager: FIELD_MANAGER, fieldValidation: "Strict", dryRun } });
  const check = async () => {
    setError(null);
    try {
      const body = fromYaml(text);
      const meta = { ...(body.metadata as Record<string, unknown>), resourceVersion: base.metadata.resourceVersion };
      const whole = { ...body, metadata: meta };
      warnings.value = [];
      const answer = await write(whole, "All");
      setReview({ body: whole, after: toYaml(editable(answer)), warnings: warnings.value });
    } catch (failure) {
      setError(failure);
    }
  };
  useEffect(() => {
    if (proposal !== undefined && dirty) void check();
  }, []);
  const apply = async () => {
    if (!review) return;
    try {
      const answer = await write(review.body);
      keepEdit({ path, at: Date.now(), before: saved });
      setBase(answer);
      setText(toYaml(editable(answer)));
      setReview(null);
      onDone?.();
      update(begin(t("Saved: {name}", { name: base.metadata.name })), { state: "done" });
    } catch (failure) {
      setReview(null);
      setError(failure);
    }
  };
  const command = `kubectl get ${kubectlName(kind)} ${base.metadata.name}${base.metadata.namespace ? ` -n ${base.metadata.namespace}` : ""} -o yaml`;
  const stale = dirty && object.metadata.resourceVersion !== base.metadata.resourceVersion;
  return (
    <div class="stack grow yaml">
      <div class="toolbar">
        <code class="muted grow ellipsis">{command}</code>
        <CopyButton text={command} label={t("Copy command")} />
        {!readOnly && (
          <>
            <EarlierVersions path={path} choose={setText} />
            <Button disabled={dirty ? false : t("Nothing was changed")} onClick={() => (setBase(object), setText(toYaml(editable(object))), setError(null), onDone?.())}>
              {t("Discard")}
            </Button>
            <Button look="primary" disabled={dirty ? false : t("Nothing was changed")} onClick={() => void check()}>
              {t("Review changes")}
            </Button>
          </>
        )}
      </div>
      <ErrorNote error={error} />
      {stale && <Note tone="warn">{t("The object was changed elsewhere since you began. Discard to see it; saving will be refused.")}</Note>}
      <div class="editor grow">
        <Editor value={text} label={t("YAML of {name}", { name: base.metadata.name })} readOnly={readOnly} kind={kind} onChange={setText} />
      </div>
      {review && (
        <Dialog
          wide
          title={t("Changes to {name}", { name: base.metadata.name })}
          onClose={() => setReview(null)}
          onSubmit={() => void apply()}
          footer={
            <>
              <Button onClick={() => setReview(null)}>{t("Back")}</Button>
              <Button submit look="primary">
                {t("Save")}
              </Button>
            </>
          }
        >
          <div class="stack">
            <Note tone="ok">{t("The server accepts this. Nothing has been changed yet.")}</Note>
            {review.warnings.map((one) => (
              <Note key={one} tone="warn">
                {one}
              </Note>
            ))}
            <Diff before={saved} after={review.after} />
          </div>
        </Dialog>
      )}
    </div>
  );
}

/** What the object was before each save in this tab. Choosing one only fills the editor: it is reviewed and saved as any change. */
function EarlierVersions({ path, choose }: { path: string; choose: (text: string) => void }) {
  const versions = editsOf(path);
  if (versions.length === 0) return null;
  const items = versions.map((one) => ({ label: t("Before the save of {time}", { time: exactTime(new Date(one.at).toISOString()) }), icon: "history" as const, run: () => choose(one.before) }));
  return (
    <Menu label={t("Take back a change")} items={items} look="" note={t("Saved in this tab")}>
      <Icon name="undo" />
      {t("Undo")}
    </Menu>
  );
}
