import { deleteObject, notAllowed } from "../actions/remove.ts";
import { useState } from "preact/hooks";
import { FIELD_MANAGER, post } from "../api/http.ts";
import { KEY_PAIR, pathOf } from "../api/kinds.ts";
import { firstProject, may } from "../api/session.ts";
import type { KeyPair } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { confirm } from "../components/Confirm.tsx";
import { copyText } from "../components/Copy.tsx";
import { Empty } from "../components/Empty.tsx";
import { Field } from "../components/Field.tsx";
import { FormDialog } from "../components/FormDialog.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu, type MenuItem } from "../components/Menu.tsx";
import { NamespaceSelect } from "../components/NamespaceSelect.tsx";
import { saveFile } from "../components/UserMenu.tsx";
import { t } from "../messages.ts";
import type { Filterable } from "../model/filter.ts";

interface KeyRow extends Filterable {
  key: KeyPair;
}

const COLUMNS: Column<KeyRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(130px, 1fr)", sort: (row) => row.key.metadata.name, cell: (row) => <b>{row.key.metadata.name}</b>, phone: "first" },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.6fr)", sort: (row) => row.key.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.key.metadata.namespace}</span>, phone: "second" },
  { id: "fingerprint", label: t("Fingerprint"), width: "minmax(200px, 1.6fr)", cell: (row) => <span class="mono">{row.key.status?.fingerPrint ?? "–"}</span> },
  { id: "age", label: t("Age"), width: "52px", right: true, sort: (row) => -Date.parse(row.key.metadata.creationTimestamp ?? ""), cell: (row) => <Age time={row.key.metadata.creationTimestamp} /> },
];

async function askDelete(key: KeyPair): Promise<void> {
  const { name, namespace } = key.metadata;
  const answer = await confirm({ title: t("Delete the key {name}?", { name }), body: <p>{t("Machines that were made with it keep it.")}</p>, action: t("Delete"), danger: true });
  if (answer) await deleteObject(KEY_PAIR, namespace, name);
}

export function Keys() {
  const keys = useCollection<KeyPair>(KEY_PAIR);
  const [adding, setAdding] = useState<"paste" | "generate" | null>(null);
  const menu = (row: KeyRow) => {
    const items: MenuItem[] = [
      { label: t("Copy public key"), icon: "copy", run: () => void copyText(row.key.spec?.publicKey ?? "") },
      { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: notAllowed("delete", KEY_PAIR), run: () => void askDelete(row.key) },
    ];
    return <Menu label={t("Actions of {name}", { name: row.key.metadata.name })} items={items} />;
  };
  const actions = may("create", "harvesterhci.io", "keypairs") && (
    <div class="row">
      <Button icon="sprout" onClick={() => setAdding("generate")}>
        {t("Generate")}
      </Button>
      <Button icon="plus" look="primary" onClick={() => setAdding("paste")}>
        {t("Add key")}
      </Button>
    </div>
  );
  const rows = [...keys.items.values()].map((key) => ({
    key,
    text: `${key.metadata.name} ${key.metadata.namespace} ${key.spec?.publicKey ?? ""}`.toLowerCase(),
    fields: { project: key.metadata.namespace },
  }));
  return (
    <ListPage
      title={t("SSH keys")}
      source={keys}
      rows={rows}
      columns={COLUMNS}
      keyOf={(row) => `${row.key.metadata.namespace}/${row.key.metadata.name}`}
      menu={menu}
      actions={actions}
      empty={
        <Empty icon="key" title={t("No keys yet")} action={actions}>
          {t("Keys are offered when you create a machine, so that you can log in to it.")}
        </Empty>
      }
    >
      {adding === "paste" && <AddKey onClose={() => setAdding(null)} />}
      {adding === "generate" && <GenerateKey onClose={() => setAdding(null)} />}
    </ListPage>
  );
}

function AddKey({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [namespace, setNamespace] = useState(firstProject);
  const [text, setText] = useState("");
  const submit = () =>
    post(
      pathOf(KEY_PAIR, namespace),
      { apiVersion: "harvesterhci.io/v1beta1", kind: "KeyPair", metadata: { name, namespace }, spec: { publicKey: text.trim() } },
      { query: { fieldManager: FIELD_MANAGER } },
    );
  const missing = name === "" ? t("A name is missing") : text.trim() === "" ? t("A key is missing") : undefined;
  return (
    <FormDialog title={t("Add a public key")} action={t("Add")} missing={missing} submit={submit} onClose={onClose}>
      <div class="fields">
        <Field label={t("Name")}>
          <input class="input" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field label={t("Project")}>
          <NamespaceSelect value={namespace} onChange={setNamespace} />
        </Field>
      </div>
      <Field label={t("Public key")} hint={t("The content of ~/.ssh/id_ed25519.pub, for instance.")}>
        <textarea class="input" rows={4} placeholder="ssh-ed25519 AAAA…" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}

function GenerateKey({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [namespace, setNamespace] = useState(firstProject);
  const submit = async () => {
    const path = "/v1/harvester/harvesterhci.io.keypairs?action=keygen";
    const privateKey = await post<string>(path, { name, namespace });
    saveFile(`${name}.pem`, typeof privateKey === "string" ? privateKey : JSON.stringify(privateKey));
  };
  return (
    <FormDialog title={t("Generate a key")} action={t("Generate and save the private key")} missing={name ? undefined : t("A name is missing")} submit={submit} onClose={onClose}>
      <p class="muted">{t("The private key is saved to a file here and kept nowhere else.")}</p>
      <div class="fields">
        <Field label={t("Name")}>
          <input class="input" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field label={t("Project")}>
          <NamespaceSelect value={namespace} onChange={setNamespace} />
        </Field>
      </div>
    </FormDialog>
  );
}
