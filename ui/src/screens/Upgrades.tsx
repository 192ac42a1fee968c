import { useState } from "preact/hooks";
import { beginUpgrade, beginUpgradeFrom, LABELS, NAMESPACE, steer } from "../actions/upgrade.tsx";
import { HOST, UPGRADE } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import { keyOf } from "../api/objects.ts";
import type { Host, Upgrade } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Button } from "../components/Button.tsx";
import { CopyLine } from "../components/Copy.tsx";
import { Field } from "../components/Field.tsx";
import { FormDialog } from "../components/FormDialog.tsx";
import { Page } from "../components/Page.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import { formatBytes } from "../model/quantity.ts";
import { hostTone, latest, programOf, upgradeState } from "../model/upgrade.ts";
import { hostPath, href } from "../router.ts";

export function Upgrades() {
  const upgrades = useCollection<Upgrade>(UPGRADE, { namespace: NAMESPACE });
  const hosts = useCollection<Host>(HOST);
  const [asking, setAsking] = useState(false);
  const upgrade = latest(upgrades.items.values());
  const mayCreate = may("create", UPGRADE.group, UPGRADE.plural);
  return (
    <Page title={t("Upgrade")}>
      <div class="cards two">
        <section class="card">
          <header>
            <h2>{t("Last upgrade")}</h2>
            {mayCreate && (
              <Button small look="primary" icon="upload" onClick={() => setAsking(true)}>
                {t("Upgrade…")}
              </Button>
            )}
          </header>
          {upgrade ? <Progress upgrade={upgrade} /> : <p class="body muted">{t("There was no upgrade of this cluster.")}</p>}
        </section>
        <section class="card">
          <header>
            <h2>{t("Hosts")}</h2>
          </header>
          <ul class="list">
            {[...hosts.items.values()].map((host) => (
              <HostRow key={keyOf(host)} host={host} upgrade={upgrade} />
            ))}
          </ul>
        </section>
      </div>
      {asking && <NewUpgrade onClose={() => setAsking(false)} />}
    </Page>
  );
}

function Progress({ upgrade }: { upgrade: Upgrade }) {
  const { status, message, actions } = upgradeState(upgrade);
  const mayPatch = may("patch", "harvesterhci.io", "upgrades");
  return (
    <div class="body stack">
      <dl class="facts">
        <dt>{t("State")}</dt>
        <dd>
          <StatusMark status={status} />
        </dd>
        <dt>{t("Version")}</dt>
        <dd>{upgrade.spec?.version ?? "–"}</dd>
        {message && (
          <>
            <dt>{t("Message")}</dt>
            <dd class="wrap">{message}</dd>
          </>
        )}
      </dl>
      {mayPatch && actions.length > 0 && (
        <div class="row wraps">
          {actions.map((action) => (
            <Button key={action} small onClick={() => void steer(upgrade, action)}>
              {t(LABELS[action])}
            </Button>
          ))}
        </div>
      )}
      <CopyLine text="sheaf upgrade status" />
    </div>
  );
}

function HostRow({ host, upgrade }: { host: Host; upgrade: Upgrade | undefined }) {
  const { name } = host.metadata;
  const own = upgrade?.status?.nodeStatuses?.[name];
  const { program, version } = programOf(host);
  return (
    <li class="row wraps">
      <StatusMark status={{ tone: hostTone(own?.state), word: own?.state ?? "Not asked" }} />
      <span class="grow wrap">
        <a href={href(hostPath(name))}>{name}</a> <span class="muted">{own?.message}</span>
      </span>
      <span class="faint mono">{[version, program].filter(Boolean).join(" · ")}</span>
    </li>
  );
}

function NewUpgrade({ onClose }: { onClose: () => void }) {
  const [file, setFile] = useState<File | null>(null);
  const [url, setUrl] = useState("");
  const [sum, setSum] = useState("");
  const byUrl = url !== "";
  const submit = () => (byUrl ? beginUpgradeFrom(url, sum) : beginUpgrade(file as File));
  const missing = byUrl ? (/^[0-9a-f]{128}$/.test(sum) ? undefined : t("The SHA-512 sum of the program is missing")) : file ? undefined : t("No program is chosen");
  return (
    <FormDialog title={t("Upgrade all hosts")} action={t("Upgrade")} missing={missing} submit={submit} onClose={onClose}>
      <p>{t("Hosts are upgraded one after the other, and machines keep running. A host whose new program is not healthy goes back by itself.")}</p>
      <Field label={file ? `${file.name} (${formatBytes(file.size)})` : t("Program")}>
        <input class="input" type="file" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} />
      </Field>
      <Field label={t("Or a URL that all hosts reach")}>
        <input class="input" type="url" placeholder="https://" value={url} onInput={(event) => setUrl(event.currentTarget.value)} />
      </Field>
      {byUrl && (
        <Field label={t("SHA-512 of the program")}>
          <input class="input mono" value={sum} onInput={(event) => setSum(event.currentTarget.value.trim())} />
        </Field>
      )}
    </FormDialog>
  );
}
