import { mergePatch } from "../api/http.ts";
import { HOST, INSTANCE, MACHINE, pathOf } from "../api/kinds.ts";
import { condition, type Condition } from "../api/objects.ts";
import { may } from "../api/session.ts";
import type { Host, Instance, Machine } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { confirm } from "../components/Confirm.tsx";
import { Waiting } from "../components/Empty.tsx";
import { Icon } from "../components/Icon.tsx";
import { Meter } from "../components/Meter.tsx";
import { Page } from "../components/Page.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { plural, t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { capacityOf } from "../model/capacity.ts";
import { machineRows, type MachineRow } from "../model/machine.ts";
import { formatBytes } from "../model/quantity.ts";
import type { Status } from "../model/status.ts";
import { href } from "../router.ts";

function hostStatus(host: Host): Status {
  const ready = condition((host.status?.conditions ?? []) as Condition[], "Ready");
  if (ready?.status !== "True") return { tone: "bad", word: "Not ready", reason: ready?.message };
  if (host.spec?.unschedulable) return { tone: "warn", word: "Cordoned" };
  return { tone: "ok", word: "Ready" };
}

/** Most conditions of a host are good when they are true; these are not. */
const isProblem = (one: Condition) => /Pressure$|Unavailable$/.test(one.type) && one.status === "True";

async function cordon(host: Host, machines: MachineRow[]): Promise<void> {
  const { name } = host.metadata;
  const wanted = !host.spec?.unschedulable;
  if (wanted) {
    const body = <p>{t("No new machine is placed on it. {machines} on it keep running, but do not start again there after they stop.", { machines: plural(machines.length, "machine") })}</p>;
    if (!(await confirm({ title: t("Cordon {name}?", { name }), body, action: t("Cordon") }))) return;
  }
  await perform(`${wanted ? t("Cordon") : t("Uncordon")}: ${name}`, () => mergePatch(pathOf(HOST, "", name), { spec: { unschedulable: wanted || null } }));
}

export function Hosts() {
  const hosts = useCollection<Host>(HOST);
  const rows = machineRows(useCollection<Machine>(MACHINE), useCollection<Instance>(INSTANCE));
  return (
    <Page title={t("Hosts")}>
      {hosts.items.size === 0 && <Waiting freshness={hosts.freshness.value} error={hosts.error.value} />}
      <div class="cards two">
        {[...hosts.items.values()].map((host) => (
          <HostCard key={host.metadata.name} host={host} rows={rows.filter((row) => row.node === host.metadata.name)} />
        ))}
      </div>
    </Page>
  );
}

function HostCard({ host, rows }: { host: Host; rows: MachineRow[] }) {
  const { name, creationTimestamp } = host.metadata;
  const capacity = capacityOf([host], rows);
  const info = host.status?.nodeInfo;
  const address = host.status?.addresses?.find((one) => one.type === "InternalIP")?.address;
  const lines: [string, number, number, string][] = [
    [t("CPU given to guests"), capacity.cpuUsed, capacity.cpu, `${capacity.cpuUsed} / ${capacity.cpu}`],
    [t("Memory given to guests"), capacity.memoryUsed, capacity.memory, `${formatBytes(capacity.memoryUsed)} / ${formatBytes(capacity.memory)}`],
  ];
  return (
    <section class="card" aria-label={name}>
      <header>
        <Icon name="server" />
        <h2>{name}</h2>
        <StatusMark status={hostStatus(host)} pill />
        {may("patch", "", "nodes") && (
          <Button small onClick={() => void cordon(host, rows)}>
            {host.spec?.unschedulable ? t("Uncordon") : t("Cordon")}
          </Button>
        )}
      </header>
      <div class="body stack">
        {lines.map(([label, used, all, text]) => (
          <div key={label} class="stack tight">
            <div class="row">
              <span class="grow">{label}</span>
              <span class="muted">{text}</span>
            </div>
            <Meter value={used} of={all} label={label} plain={all === capacity.cpu} />
          </div>
        ))}
        <dl class="facts">
          <dt>{t("Machines")}</dt>
          <dd>
            <a href={href(`/machines?q=node:${name}`)}>{plural(rows.length, "machine")}</a>
          </dd>
          <dt>{t("Address")}</dt>
          <dd class="mono">{address ?? "–"}</dd>
          <dt>{t("System")}</dt>
          <dd>{[info?.osImage, info?.kernelVersion, info?.architecture].filter(Boolean).join(" · ") || "–"}</dd>
          <dt>{t("Version")}</dt>
          <dd>{[info?.containerRuntimeVersion, info?.kubeletVersion].filter(Boolean).join(" · ") || "–"}</dd>
          <dt>{t("Guests")}</dt>
          <dd>{condition((host.status?.conditions ?? []) as Condition[], "Virtualization")?.message ?? "–"}</dd>
          <dt>{t("Joined")}</dt>
          <dd>
            <Age time={creationTimestamp} />
          </dd>
        </dl>
        {((host.status?.conditions ?? []) as Condition[]).filter(isProblem).map((one) => (
          <StatusMark key={one.type} status={{ tone: "warn", word: one.type, reason: one.message }} reason />
        ))}
        <a href={href(`/api/core/v1/nodes/${name}`)}>{t("Show as YAML")}</a>
      </div>
    </section>
  );
}
