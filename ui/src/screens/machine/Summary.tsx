import { useEffect, useState } from "preact/hooks";
import { MACHINE_ACTIONS, refusalOf, runAction } from "../../actions/machine.tsx";
import { INSTANCE, subresource } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { CopyButton, CopyLine } from "../../components/Copy.tsx";
import { Icon } from "../../components/Icon.tsx";
import { plural, t } from "../../messages.ts";
import { claimsOf, type MachineRow } from "../../model/machine.ts";
import { formatBytes } from "../../model/quantity.ts";
import { hostPath, href, machinePath, volumePath } from "../../router.ts";
import { MigrationCard } from "./MigrationCard.tsx";
import { WhyCard } from "./Why.tsx";

export function MachineSummary({ row }: { row: MachineRow }) {
  const { machine, instance } = row;
  const guest = instance?.status?.guestOSInfo;
  const volumes = claimsOf(machine);
  const snapshot = MACHINE_ACTIONS.find((action) => action.id === "snapshot");
  return (
    <div class="cards">
      <WhyCard row={row} />
      {may("list", "kubevirt.io", "virtualmachineinstancemigrations") && <MigrationCard row={row} />}
      <section class="card">
        <header>
          <h2>{t("Machine")}</h2>
        </header>
        <dl class="facts body">
          <dt>{t("CPU")}</dt>
          <dd>{plural(row.cpus, "core")}</dd>
          <dt>{t("Memory")}</dt>
          <dd>{formatBytes(row.memory)}</dd>
          {row.size && (
            <>
              <dt>{t("Instance type")}</dt>
              <dd>{row.size}</dd>
            </>
          )}
          <dt>{t("Run strategy")}</dt>
          <dd>{machine.spec?.runStrategy ?? (machine.spec?.running ? "Always" : "Halted")}</dd>
          <dt>{t("Host")}</dt>
          <dd>{row.node && may("list", "", "nodes") ? <a href={href(hostPath(row.node))}>{row.node}</a> : row.node || "–"}</dd>
          <dt>{t("Created")}</dt>
          <dd>
            <Age time={row.created} />
          </dd>
          {guest?.prettyName && (
            <>
              <dt>{t("Guest")}</dt>
              <dd>{guest.prettyName}</dd>
            </>
          )}
        </dl>
      </section>
      <section class="card">
        <header>
          <h2>{t("Access")}</h2>
          <a class="button small" href={href(machinePath(row.namespace, row.name, "console"))}>
            <Icon name="monitor" />
            {t("Open console")}
          </a>
        </header>
        <div class="body stack">
          <dl class="facts">
            <dt>{t("Addresses")}</dt>
            <dd>
              {row.addresses.length === 0 && "–"}
              {row.addresses.map((address) => (
                <span key={address} class="row mono">
                  {address}
                  <CopyButton text={address} label={t("Copy address")} />
                </span>
              ))}
            </dd>
          </dl>
          <CopyLine text={`sheaf vm ssh ${row.name} -n ${row.namespace}`} />
          <CopyLine text={`virtctl console ${row.name} -n ${row.namespace}`} />
        </div>
      </section>
      {instance?.status?.phase === "Running" && <Screenshot row={row} />}
      <section class="card">
        <header>
          <h2>{t("Disks")}</h2>
          {snapshot && (
            <Button small icon="camera" disabled={refusalOf(snapshot, row) ?? false} onClick={() => void runAction(snapshot, [row])}>
              {t("Take snapshot")}
            </Button>
          )}
          <a href={href(machinePath(row.namespace, row.name, "disks"))}>{t("All")}</a>
        </header>
        <ul class="list">
          {[...volumes].map(([disk, claim]) => (
            <li key={disk} class="row">
              <Icon name="disk" />
              <b>{disk}</b>
              <a class="ellipsis" href={href(volumePath(row.namespace, claim))}>{claim}</a>
            </li>
          ))}
          {volumes.size === 0 && <li class="muted">{t("No volumes: what the guest writes is lost when it stops.")}</li>}
        </ul>
      </section>
      <section class="card">
        <header>
          <h2>{t("Labels")}</h2>
        </header>
        <div class="body row wraps">
          {Object.entries(machine.metadata.labels ?? {}).map(([key, value]) => (
            <span key={key} class="tag" title={`${key}=${value}`}>
              {key}
              {value && `=${value}`}
            </span>
          ))}
          {Object.keys(machine.metadata.labels ?? {}).length === 0 && <span class="muted">{t("None")}</span>}
        </div>
      </section>
    </div>
  );
}

const EVERY = 5000;

/** The guest's screen, taken again every few seconds while the page is looked at. */
function Screenshot({ row }: { row: MachineRow }) {
  const [shown, setShown] = useState<string | null>(null);
  useEffect(() => {
    let url: string | null = null;
    let wanted = true;
    const take = async () => {
      if (document.hidden) return;
      const response = await fetch(subresource(INSTANCE, row.namespace, row.name, "vnc/screenshot")).catch(() => null);
      if (!response?.ok || !wanted) return;
      const next = URL.createObjectURL(await response.blob());
      setShown(next);
      if (url) URL.revokeObjectURL(url);
      url = next;
    };
    void take();
    const timer = setInterval(() => void take(), EVERY);
    return () => {
      wanted = false;
      clearInterval(timer);
      if (url) URL.revokeObjectURL(url);
    };
  }, [row.key]);
  if (!shown) return null;
  return (
    <section class="card">
      <header>
        <h2>{t("Screen")}</h2>
      </header>
      <a class="screenshot" href={href(machinePath(row.namespace, row.name, "console"))}>
        <img src={shown} alt={t("The screen of {name}; opens the console", { name: row.name })} />
      </a>
    </section>
  );
}
