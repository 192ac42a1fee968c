import { EVENT, HOST, INSTANCE, LONGHORN_NODE, MACHINE } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import type { Host, Instance, KubeEvent, Machine } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { CopyLine } from "../components/Copy.tsx";
import { Empty, Waiting } from "../components/Empty.tsx";
import { EventList, newestFirst } from "../components/EventList.tsx";
import { Note } from "../components/Note.tsx";
import { Page } from "../components/Page.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { UsageCharts } from "../components/UsageCharts.tsx";
import { t } from "../messages.ts";
import { conditionsOf, conditionTone, hostStatus, type StorageNode } from "../model/host.ts";
import { machineRows } from "../model/machine.ts";
import { parseQuantity } from "../model/quantity.ts";
import { nodeSeries } from "../model/series.ts";
import { href } from "../router.ts";
import { HostActions } from "./host/HostActions.tsx";
import { HostDisks } from "./host/HostDisks.tsx";
import { HostLossCard } from "./host/HostLoss.tsx";
import { HostMachines } from "./host/HostMachines.tsx";

export function HostDetail({ words }: { words: string[] }) {
  const [, name] = words;
  const hosts = useCollection<Host>(HOST, { fieldSelector: `metadata.name=${name}` });
  const rows = machineRows(useCollection<Machine>(MACHINE), useCollection<Instance>(INSTANCE)).filter((row) => row.node === name);
  const host = hosts.items.get(name);
  const crumbs = (
    <nav class="crumbs" aria-label={t("Where")}>
      <a href={href("/hosts")}>{t("Hosts")}</a>
    </nav>
  );
  if (!host) {
    const missing = hosts.freshness.value === "live";
    return (
      <Page title={name} above={crumbs}>
        {missing ? <Empty icon="server" title={t("There is no host {name}", { name })} /> : <Waiting freshness={hosts.freshness.value} error={hosts.error.value} />}
      </Page>
    );
  }
  const status = hostStatus(host);
  const amount = (what: string) => parseQuantity((host.status?.capacity as Record<string, string> | undefined)?.[what]);
  return (
    <Page title={name} above={crumbs} beside={<StatusMark status={status} pill />} actions={<HostActions host={host} machines={rows.length} />}>
      {status.reason && <Note tone={status.tone === "bad" ? "bad" : "info"}>{status.reason}</Note>}
      {may("get", "metrics.sheaf.io", "nodes/series") && <UsageCharts load={nodeSeries(name)} of={name} cores={amount("cpu")} memory={amount("memory")} />}
      <div class="cards two">
        <HostMachines name={name} rows={rows} />
        {may("list", "longhorn.io", "replicas") && <HostLossCard name={name} />}
        {may("list", "longhorn.io", "nodes") && <Disks name={name} />}
        <Facts host={host} />
        <Conditions host={host} />
        {may("list", "", "events") && <Events name={name} />}
      </div>
    </Page>
  );
}

function Disks({ name }: { name: string }) {
  const nodes = useCollection<StorageNode>(LONGHORN_NODE, { namespace: "longhorn-system", fieldSelector: `metadata.name=${name}` });
  return <HostDisks node={nodes.items.get(`longhorn-system/${name}`)} />;
}

function Facts({ host }: { host: Host }) {
  const info = host.status?.nodeInfo;
  const addresses = (host.status?.addresses ?? []).map((one) => one.address);
  const roles = Object.keys(host.metadata.labels ?? {}).filter((label) => label.startsWith("node-role.kubernetes.io/")).map((label) => label.split("/")[1]);
  const facts: [string, string][] = [
    [t("Addresses"), [...new Set(addresses)].join(", ")],
    [t("Roles"), roles.join(", ") || t("runs machines")],
    [t("System"), [info?.osImage, info?.kernelVersion, info?.architecture].filter(Boolean).join(" · ")],
    [t("Version"), [info?.containerRuntimeVersion, info?.kubeletVersion].filter(Boolean).join(" · ")],
    [t("Processor"), host.metadata.annotations?.["node.sheaf.io/cpu-model"] ?? ""],
  ];
  return (
    <section class="card">
      <header>
        <h2>{t("Host")}</h2>
        <a href={href(`/api/core/v1/nodes/${host.metadata.name}`)}>{t("Show as YAML")}</a>
      </header>
      <div class="body stack">
        <dl class="facts">
          {facts.map(([label, text]) => (
            <>
              <dt>{label}</dt>
              <dd class="wrap">{text || "–"}</dd>
            </>
          ))}
          <dt>{t("Joined")}</dt>
          <dd>
            <Age time={host.metadata.creationTimestamp} />
          </dd>
        </dl>
        <CopyLine text={`sheaf node show ${host.metadata.name}`} />
      </div>
    </section>
  );
}

function Conditions({ host }: { host: Host }) {
  return (
    <section class="card">
      <header>
        <h2>{t("Conditions")}</h2>
      </header>
      <ul class="list">
        {conditionsOf(host).map((one) => (
          <li key={one.type} class="row wraps">
            <StatusMark status={{ tone: conditionTone(one), word: one.type }} />
            <span class="faint">{one.status}</span>
            <span class="muted grow wrap">{one.message}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Events({ name }: { name: string }) {
  const events = useCollection<KubeEvent>(EVENT, { fieldSelector: `involvedObject.kind=Node,involvedObject.name=${name}` });
  return (
    <section class="card wide">
      <header>
        <h2>{t("Events")}</h2>
      </header>
      <EventList events={newestFirst(events.items.values())} object={false} />
    </section>
  );
}
