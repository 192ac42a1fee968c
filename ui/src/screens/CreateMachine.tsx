import { useEffect, useState } from "preact/hooks";
import { ApiError, FIELD_MANAGER, post } from "../api/http.ts";
import { IMAGE, INSTANCE_TYPE, KEY_PAIR, MACHINE, NETWORK, pathOf, STORAGE_CLASS, TEMPLATE_VERSION } from "../api/kinds.ts";
import type { KubeObject } from "../api/objects.ts";
import type { Image, InstanceType, KeyPair, Network, StorageClass, TemplateVersion } from "../api/types.ts";
import { firstProject } from "../api/session.ts";
import { useCollection } from "../api/watch.ts";
import { Button } from "../components/Button.tsx";
import { copyText } from "../components/Copy.tsx";
import { Editor } from "../components/Editor.tsx";
import { Field } from "../components/Field.tsx";
import { Menu } from "../components/Menu.tsx";
import { NamespaceSelect } from "../components/NamespaceSelect.tsx";
import { ErrorNote, Note } from "../components/Note.tsx";
import { Page } from "../components/Page.tsx";
import { plural, t } from "../messages.ts";
import { performAll } from "../model/activity.ts";
import { EMPTY, machineObject, missing, namesOf, type Draft, type DraftContext } from "../model/draft.ts";
import { imageStatus } from "../model/image.ts";
import { fromYaml, toYaml } from "../model/yaml.ts";
import { here, href, machinePath, navigate } from "../router.ts";
import { AccessSection } from "./create/AccessSection.tsx";
import { SizeSection } from "./create/SizeSection.tsx";
import { SourceSection } from "./create/SourceSection.tsx";

const KEPT = "sheaf.draft";
const DRY_RUN_AFTER = 400;

/** The draft of before, unless the URL says what to begin with. */
function firstDraft(): Draft {
  const { query } = here.value;
  const kept = sessionStorage.getItem(KEPT);
  const draft: Draft = { ...EMPTY, namespace: firstProject(), ...(kept ? (JSON.parse(kept) as Partial<Draft>) : {}), password: "" };
  const image = query.get("image");
  const template = query.get("template");
  if (image) return { ...draft, source: "image", image };
  if (template) return { ...draft, source: "template", template };
  return draft;
}

function useContext() {
  const images = useCollection<Image>(IMAGE);
  const types = useCollection<InstanceType>(INSTANCE_TYPE);
  const networks = useCollection<Network>(NETWORK);
  const keys = useCollection<KeyPair>(KEY_PAIR);
  const versions = useCollection<TemplateVersion>(TEMPLATE_VERSION);
  const classes = useCollection<StorageClass>(STORAGE_CLASS);
  const ready = [...images.items.values()].filter((image) => imageStatus(image).tone === "ok");
  const standard = [...classes.items.values()].find((one) => one.metadata.annotations?.["storageclass.kubernetes.io/is-default-class"] === "true");
  const context: DraftContext = {
    imageClasses: new Map(ready.map((image) => [`${image.metadata.namespace}/${image.metadata.name}`, image.status?.storageClassName ?? ""])),
    defaultClass: standard?.metadata.name ?? "",
    publicKeys: new Map([...keys.items].map(([id, key]) => [id, key.spec?.publicKey ?? ""])),
    templates: new Map([...versions.items].map(([id, version]) => [id, (version.spec?.vm ?? {}) as { spec?: Record<string, unknown> }])),
  };
  const sortedTypes = [...types.items.values()].sort((a, b) => a.metadata.name.localeCompare(b.metadata.name, undefined, { numeric: true }));
  return { context, ready, types: sortedTypes, networks: [...networks.items.values()], keys: [...keys.items.values()], versions: [...versions.items.values()] };
}

const create = (object: KubeObject, dryRun?: "All") =>
  post<KubeObject>(pathOf(MACHINE, object.metadata.namespace), object, { query: { fieldManager: FIELD_MANAGER, fieldValidation: "Strict", dryRun } });

export function CreateMachine() {
  const [draft, setDraft] = useState(firstDraft);
  const [edited, setEdited] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [accepted, setAccepted] = useState(false);
  const { context, ready, types, networks, keys, versions } = useContext();
  const change = (part: Partial<Draft>) => setDraft((before) => ({ ...before, ...part }));
  const names = namesOf(draft);
  const lacks = edited === null ? missing(draft) : undefined;
  const generated = toYaml(machineObject(draft, names[0] || "NAME", context));
  const text = edited ?? generated;
  const objects = (): KubeObject[] =>
    edited === null ? names.map((name) => machineObject(draft, name, context)) : [fromYaml(edited) as unknown as KubeObject];
  useEffect(() => {
    const { password: _, ...kept } = draft;
    sessionStorage.setItem(KEPT, JSON.stringify(kept));
  }, [draft]);
  // The server is asked whether it would take it, a moment after the last change.
  useEffect(() => {
    setAccepted(false);
    if (lacks) return setError(null);
    const timer = setTimeout(async () => {
      try {
        await create(objects()[0], "All");
        setError(null);
        setAccepted(true);
      } catch (failure) {
        setError(failure);
      }
    }, DRY_RUN_AFTER);
    return () => clearTimeout(timer);
  }, [text, lacks]);
  const submit = async () => {
    try {
      const all = objects();
      if (all.length === 1) {
        const made = await create(all[0]);
        sessionStorage.removeItem(KEPT);
        navigate(machinePath(made.metadata.namespace ?? "", made.metadata.name));
      } else {
        sessionStorage.removeItem(KEPT);
        navigate("/machines");
        await performAll(t("Create {machines}", { machines: plural(all.length, "machine") }), all, (one) => one.metadata.name, (one) => create(one));
      }
    } catch (failure) {
      setError(failure);
    }
  };
  const nameError = error instanceof ApiError ? error.causes.find((cause) => cause.field === "metadata.name")?.message : undefined;
  return (
    <Page
      title={t("Create machine")}
      above={
        <nav class="crumbs" aria-label={t("Where")}>
          <a href={href("/machines")}>{t("Machines")}</a>
        </nav>
      }
    >
      <div class="create">
        <div class="stack">
          {edited !== null && (
            <Note tone="warn">
              <span>{t("The YAML was edited by hand: it is what will be created, and the form is out of use.")}</span>
              <span>
                <Button small onClick={() => setEdited(null)}>
                  {t("Back to the form")}
                </Button>
              </span>
            </Note>
          )}
          <fieldset class="plain-set stack" disabled={edited !== null}>
            <section class="card">
              <header>
                <h2>{t("Name")}</h2>
              </header>
              <div class="body fields">
                <Field label={t("Name")} hint={draft.count > 1 ? names.slice(0, 3).join(", ") + (names.length > 3 ? ", …" : "") : undefined} error={nameError}>
                  <input class="input" autoFocus autoComplete="off" spellcheck={false} placeholder="web" value={draft.name} onInput={(event) => change({ name: event.currentTarget.value })} />
                </Field>
                <Field label={t("Project")}>
                  <NamespaceSelect value={draft.namespace} onChange={(namespace) => change({ namespace })} />
                </Field>
                <Field label={t("How many")}>
                  <input class="input" type="number" min="1" max="100" value={draft.count} onInput={(event) => change({ count: Math.max(1, Math.min(100, Number(event.currentTarget.value) || 1)) })} />
                </Field>
              </div>
            </section>
            <SourceSection draft={draft} change={change} images={ready} versions={versions} />
            {draft.source !== "template" && <SizeSection draft={draft} change={change} types={types} networks={networks} />}
            {draft.source !== "template" && <AccessSection draft={draft} change={change} keys={keys} />}
          </fieldset>
        </div>
        <div class="side stack">
          <div class="editor">
            <Editor value={text} label={t("YAML of the new machine")} kind={MACHINE} onChange={setEdited} />
          </div>
          {lacks ? <Note>{t(lacks)}</Note> : error ? <ErrorNote error={error} /> : accepted ? <Note tone="ok">{t("The server accepts this machine.")}</Note> : <Note>{t("Asking the server…")}</Note>}
        </div>
      </div>
      <div class="bottom-bar">
        <label class="check">
          <input type="checkbox" checked={draft.start} disabled={edited !== null} onChange={(event) => change({ start: event.currentTarget.checked })} />
          {t("Start it")}
        </label>
        <span class="grow" />
        <Menu
          label={t("Copy as")}
          look=""
          items={[
            { label: "YAML", icon: "copy", run: () => void copyText(text) },
            { label: "kubectl", icon: "terminal", run: () => void copyText(`kubectl create -f - <<'EOF'\n${text}EOF\n`) },
          ]}
        >
          {t("Copy as…")}
        </Menu>
        <Button look="primary" disabled={lacks ? t(lacks) : false} onClick={() => void submit()}>
          {names.length > 1 && edited === null ? t("Create {machines}", { machines: plural(names.length, "machine") }) : t("Create machine")}
        </Button>
      </div>
    </Page>
  );
}
