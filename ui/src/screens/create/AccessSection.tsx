import { useState } from "preact/hooks";
import type { KeyPair } from "../../api/types.ts";
import { Field } from "../../components/Field.tsx";
import { t } from "../../messages.ts";
import type { Draft } from "../../model/draft.ts";

interface Props {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  keys: KeyPair[];
}

export function AccessSection({ draft, change, keys }: Props) {
  const [more, setMore] = useState(draft.cloudConfig !== "" || draft.efi);
  const toggle = (id: string) =>
    change({ keys: draft.keys.includes(id) ? draft.keys.filter((one) => one !== id) : [...draft.keys, id] });
  return (
    <section class="card">
      <header>
        <h2>{t("Log in")}</h2>
      </header>
      <div class="body stack">
        {keys.length > 0 && (
          <fieldset class="plain-set stack tight">
            <legend>{t("SSH keys")}</legend>
            {keys.map((key) => {
              const id = `${key.metadata.namespace}/${key.metadata.name}`;
              return (
                <label key={id} class="check">
                  <input type="checkbox" checked={draft.keys.includes(id)} onChange={() => toggle(id)} />
                  {key.metadata.name} <span class="faint">{key.metadata.namespace}</span>
                </label>
              );
            })}
          </fieldset>
        )}
        <Field label={keys.length > 0 ? t("Another SSH key") : t("SSH key")}>
          <textarea class="input" rows={2} placeholder="ssh-ed25519 AAAA…" value={draft.pastedKey} onInput={(event) => change({ pastedKey: event.currentTarget.value })} />
        </Field>
        <Field label={t("Password")} hint={t("For the first user of the image. It is readable for those who may read the machine; a key is better.")}>
          <input class="input" type="password" autoComplete="new-password" value={draft.password} onInput={(event) => change({ password: event.currentTarget.value })} />
        </Field>
        <details open={more} onToggle={(event) => setMore(event.currentTarget.open)}>
          <summary>{t("More")}</summary>
          <div class="stack more">
            <Field label="cloud-config" hint={t("Added to what the fields above say: packages, runcmd, write_files, …")}>
              <textarea class="input" rows={6} placeholder={"packages: [nginx]\nruncmd:\n  - systemctl enable --now nginx"} value={draft.cloudConfig} onInput={(event) => change({ cloudConfig: event.currentTarget.value })} />
            </Field>
            <label class="check">
              <input type="checkbox" checked={draft.efi} onChange={(event) => change({ efi: event.currentTarget.checked })} />
              {t("Boot with UEFI instead of BIOS")}
            </label>
          </div>
        </details>
      </div>
    </section>
  );
}
