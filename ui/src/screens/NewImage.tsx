import { useState } from "preact/hooks";
import { FIELD_MANAGER, post } from "../api/http.ts";
import { IMAGE, pathOf } from "../api/kinds.ts";
import { firstProject } from "../api/session.ts";
import { Field } from "../components/Field.tsx";
import { FormDialog } from "../components/FormDialog.tsx";
import { NamespaceSelect } from "../components/NamespaceSelect.tsx";
import { t } from "../messages.ts";
import { formatBytes } from "../model/quantity.ts";
import { uploadImage } from "../model/upload.ts";

/** A name for objects, from what people call things. */
export function nameFrom(text: string): string {
  const cleaned = text.toLowerCase().replace(/\.(qcow2|img|iso|raw|vmdk|vdi|vhdx|gz|xz|zst)+$/g, "").replace(/[^a-z0-9]+/g, "-");
  return cleaned.replace(/^-+|-+$/g, "").slice(0, 60) || "image";
}

function createImage(namespace: string, displayName: string, spec: Record<string, unknown>) {
  const name = nameFrom(displayName);
  const body = {
    apiVersion: "harvesterhci.io/v1beta1", kind: "VirtualMachineImage",
    metadata: { name, namespace }, spec: { displayName, ...spec },
  };
  return post(pathOf(IMAGE, namespace), body, { query: { fieldManager: FIELD_MANAGER } }).then(() => name);
}

export function ImportImage({ onClose }: { onClose: () => void }) {
  const [url, setUrl] = useState("");
  const [name, setName] = useState("");
  const [namespace, setNamespace] = useState(firstProject);
  const [checksum, setChecksum] = useState("");
  const guessed = name || nameFrom(url.split("?")[0].split("/").pop() ?? "");
  const submit = () => createImage(namespace, guessed, { sourceType: "download", url, ...(checksum ? { checksum } : {}) });
  const missing = /^https?:\/\/.+/.test(url) ? undefined : t("A URL is missing");
  return (
    <FormDialog title={t("Import an image")} action={t("Import")} missing={missing} submit={submit} onClose={onClose}>
      <Field label={t("URL")} hint={t("qcow2, raw, ISO, vmdk, vdi or vhdx; also compressed with gzip, xz or zstd.")}>
        <input class="input" type="url" placeholder="https://" value={url} onInput={(event) => setUrl(event.currentTarget.value)} />
      </Field>
      <div class="fields">
        <Field label={t("Name")}>
          <input class="input" value={name} placeholder={guessed} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field label={t("Project")}>
          <NamespaceSelect value={namespace} onChange={setNamespace} />
        </Field>
      </div>
      <Field label={t("SHA-512 of the file (optional)")} hint={t("With it, nobody can use the image before the file was found to be the right one.")}>
        <input class="input mono" value={checksum} onInput={(event) => setChecksum(event.currentTarget.value.trim())} />
      </Field>
    </FormDialog>
  );
}

export function UploadImage({ onClose }: { onClose: () => void }) {
  const [file, setFile] = useState<File | null>(null);
  const [name, setName] = useState("");
  const [namespace, setNamespace] = useState(firstProject);
  const [over, setOver] = useState(false);
  const guessed = name || nameFrom(file?.name ?? "");
  const submit = async () => {
    if (!file) return;
    const created = await createImage(namespace, guessed, { sourceType: "upload" });
    // Goes on while other screens are open.
    void uploadImage(namespace, created, file);
  };
  return (
    <FormDialog title={t("Upload an image")} action={t("Upload")} missing={file ? undefined : t("No file is chosen")} submit={submit} onClose={onClose}>
      <div
        class={over ? "drop over" : "drop"}
        onDragOver={(event) => (event.preventDefault(), setOver(true))}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          setFile(event.dataTransfer?.files[0] ?? null);
        }}
      >
        <Field label={file ? `${file.name} (${formatBytes(file.size)})` : t("Drop a file here, or choose one")}>
          <input class="input" type="file" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} />
        </Field>
      </div>
      <div class="fields">
        <Field label={t("Name")}>
          <input class="input" value={name} placeholder={guessed} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field label={t("Project")}>
          <NamespaceSelect value={namespace} onChange={setNamespace} />
        </Field>
      </div>
    </FormDialog>
  );
}
