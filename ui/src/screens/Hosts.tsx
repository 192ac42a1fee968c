import { HOST, INSTANCE, MACHINE } from "../api/kinds.ts";
import { condition } from "../api/objects.ts";
import type { Host, Instance, Machine } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Waiting } from "../components/Empty.tsx";
import { Icon } from "../components/Icon.tsx";
import { Meter } from "../components/Meter.tsx";
import { Page } from "../components/Page.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { plural, t } from "../messages.ts";
import { capacityOf } from "../model/capacity.ts";
import { conditionsOf, conditionTone, hostStatus } from "../model/host.ts";
import { machineRows, type MachineRow } from "../model/machine.ts";
import { formatBytes } from "../model/quantity.ts";
import { hostPath, href } from "../router.ts";
import { HostActions } from "./host/HostActions.tsx";

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
        <h2>
          <a href={href(hostPath(name))}>{name}</a>
        </h2>
        <StatusMark status={hostStatus(host)} pill />
        <HostActions host={host} machines={rows.length} small />
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
          <dd>{condition(conditionsOf(host), "Virtualization")?.message ?? "–"}</dd>
          <dt>{t("Joined")}</dt>
          <dd>
            <Age time={creationTimestamp} />
          </dd>
        </dl>
        {conditionsOf(host).filter((one) => conditionTone(one) === "bad").map((one) => (
          <StatusMark key={one.type} status={{ tone: "warn", word: one.type, reason: one.message }} reason />
        ))}
        <a href={href(hostPath(name))}>{t("Disks, machines, conditions, charts")}</a>
      </div>
    </section>
  );
}
