import { useState } from "preact/hooks";
import { mergePatch } from "../../api/http.ts";
import { pathOf, SETTING } from "../../api/kinds.ts";
import type { Setting } from "../../api/types.ts";
import { Field } from "../../components/Field.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { Note } from "../../components/Note.tsx";
import { t } from "../../messages.ts";
import { targetMissing, targetOf, targetValue, type BackupTarget } from "../../model/backup.ts";

const TYPES: { value: BackupTarget["type"]; label: string }[] = [
  { value: "", label: "None" },
  { value: "s3", label: "S3 bucket" },
  { value: "nfs", label: "NFS share" },
];

/** The place that backups go to. The server tries it when it is saved, and tells how that went beside it. */
export function TargetForm({ setting, onClose }: { setting: Setting; onClose: () => void }) {
  const [target, setTarget] = useState(() => targetOf(setting.value));
  const change = (part: Partial<BackupTarget>) => setTarget({ ...target, ...part });
  const text = (field: Exclude<keyof BackupTarget, "type" | "virtualHostedStyle">) => (
    <input class="input mono" autoComplete="off" value={target[field]} onInput={(event) => change({ [field]: event.currentTarget.value })} />
  );
  const submit = () => mergePatch(pathOf(SETTING, "", setting.metadata.name), { value: targetValue(target) });
  return (
    <FormDialog title={t("Backup target")} action={t("Save and try it")} missing={targetMissing(target)} submit={submit} onClose={onClose}>
      <Field label={t("Type")}>
        <select class="input" value={target.type} onChange={(event) => change({ type: event.currentTarget.value as BackupTarget["type"] })}>
          {TYPES.map((one) => (
            <option key={one.value} value={one.value}>
              {t(one.label)}
            </option>
          ))}
        </select>
      </Field>
      {target.type === "" && <Note>{t("Backups cannot be made. What is on the former target stays there.")}</Note>}
      {target.type === "nfs" && (
        <Field label={t("Endpoint")} hint="nfs://192.0.2.5:/backups">
          {text("endpoint")}
        </Field>
      )}
      {target.type === "s3" && (
        <>
          <Field label={t("Endpoint")} hint={t("URL of the server; empty for Amazon's.")}>
            {text("endpoint")}
          </Field>
          <div class="fields">
            <Field label={t("Bucket")}>{text("bucketName")}</Field>
            <Field label={t("Region")}>{text("bucketRegion")}</Field>
            <Field label={t("Access key")}>{text("accessKeyId")}</Field>
            <Field label={t("Secret key")} hint={t("Kept in a Secret; it is not shown again.")}>
              <input class="input mono" type="password" autoComplete="off" value={target.secretAccessKey} onInput={(event) => change({ secretAccessKey: event.currentTarget.value })} />
            </Field>
          </div>
          <label class="check">
            <input type="checkbox" checked={target.virtualHostedStyle} onChange={(event) => change({ virtualHostedStyle: event.currentTarget.checked })} />
            {t("The bucket is part of the host name")}
          </label>
        </>
      )}
    </FormDialog>
  );
}
