import { EVENT, HOST, IMAGE, INSTANCE, LONGHORN_VOLUME, MACHINE } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import type { Host, Image, Instance, KubeEvent, LonghornVolume, Machine } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { newestFirst, timeOf } from "../components/EventList.tsx";
import { Icon } from "../components/Icon.tsx";
import { Meter } from "../components/Meter.tsx";
import { Page } from "../components/Page.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { UsageCharts } from "../components/UsageCharts.tsx";
import { t } from "../messages.ts";
import { capacityOf, type Capacity } from "../model/capacity.ts";
import { hostStatus } from "../model/host.ts";
import { imageStatus } from "../model/image.ts";
import { machineRows, type MachineRow } from "../model/machine.ts";
import { formatBytes } from "../model/quantity.ts";
import { clusterSeries } from "../model/series.ts";
import { needsAttention, type Status } from "../model/status.ts";
import { volumeHealth } from "../model/volume.ts";
import { hostPath, href, machinePath } from "../router.ts";

interface Finding {
  key: string;
  what: string;
  status: Status;
  path: string;
}

/** What needs somebody, the worst first. */
function findings(rows: MachineRow[], images: Iterable<Image>, volumes: Iterable<LonghornVolume>, hosts: Iterable<Host>): Finding[] {
  const found: Finding[] = [];
  for (const host of hosts) {
    const status = hostStatus(host);
    const word = status.word === "Not ready" ? "Host not ready" : status.word;
    if (status.tone === "bad") found.push({ key: `host/${host.metadata.name}`, what: host.metadata.name, status: { ...status, word }, path: hostPath(host.metadata.name) });
  }
  for (const row of rows) {
    if (needsAttention(row.status)) found.push({ key: row.key, what: row.name, status: row.status, path: machinePath(row.namespace, row.name) });
  }
  for (const volume of volumes) {
    const status = volumeHealth(volume);
    if (needsAttention(status)) found.push({ key: `volume/${volume.metadata.name}`, what: volume.metadata.name, status, path: "/volumes" });
  }
  for (const image of images) {
    const status = imageStatus(image);
    if (status.tone === "bad") found.push({ key: `image/${image.metadata.name}`, what: image.spec?.displayName ?? image.metadata.name, status, path: "/images" });
  }
  const rank = { bad: 0, warn: 1, busy: 2, off: 3, ok: 4 };
  return found.sort((a, b) => rank[a.status.tone] - rank[b.status.tone]);
}

export function Overview() {
  const rows = machineRows(useCollection<Machine>(MACHINE), useCollection<Instance>(INSTANCE));
  const images = useCollection<Image>(IMAGE);
  const hosts = useCollection<Host>(HOST);
  const volumes = useCollection<LonghornVolume>(LONGHORN_VOLUME, { namespace: "longhorn-system" });
  const events = useCollection<KubeEvent>(EVENT);
  const found = findings(rows, images.items.values(), volumes.items.values(), hosts.items.values());
  const running = rows.filter((row) => row.instance?.status?.phase === "Running").length;
  const seesHosts = may("list", "", "nodes");
  const capacity = capacityOf(hosts.items.values(), rows);
  const latest = newestFirst(events.items.values()).slice(0, 8);
  return (
    <Page title={t("Overview")}>
      <div class="figures">
        <Figure path="/machines" label={rows.length === 1 ? t("machine, {running} running", { running }) : t("machines, {running} running", { running })} value={rows.length} />
        {may("list", "longhorn.io", "volumes") && <Figure path="/volumes" label={volumes.items.size === 1 ? t("replicated volume") : t("replicated volumes")} value={volumes.items.size} />}
        {may("list", "harvesterhci.io", "virtualmachineimages") && <Figure path="/images" label={images.items.size === 1 ? t("image") : t("images")} value={images.items.size} />}
        {seesHosts && <Figure path="/hosts" label={hosts.items.size === 1 ? t("host") : t("hosts")} value={hosts.items.size} />}
      </div>
      {rows.length === 0 && may("create", "kubevirt.io", "virtualmachines") && <FirstSteps />}
      <div class="cards two">
        <section class="card wide">
          <header>
            <h2>{t("What needs you")}</h2>
            {found.length > 0 && <span class="muted">{found.length}</span>}
          </header>
          <ul class="list">
            {found.slice(0, 12).map((finding) => (
              <li key={finding.key} class="row wraps">
                <StatusMark status={finding.status} pill />
                <b>{finding.what}</b>
                <span class="muted grow wrap">{finding.status.reason}</span>
                <a class="button small" href={href(finding.path)}>
                  {t("Show")}
                </a>
              </li>
            ))}
            {found.length > 12 && <li class="muted">{t("and {n} more", { n: found.length - 12 })}</li>}
            {found.length === 0 && (
              <li>
                <StatusMark status={{ tone: "ok", word: "Nothing needs you" }} />
              </li>
            )}
          </ul>
        </section>
        {rows.length > 0 && <RecentMachines rows={rows} />}
        {seesHosts && <CapacityCard capacity={capacity} />}
        {seesHosts && may("get", "metrics.sheaf.io", "nodes/series") && hosts.items.size > 0 && (
          <div class="wide">
            <UsageCharts load={clusterSeries([...hosts.items.keys()])} of={[...hosts.items.keys()].join()} cores={capacity.cpu} memory={capacity.memory} requests={hosts.items.size} />
          </div>
        )}
        <section class="card">
          <header>
            <h2>{t("Latest events")}</h2>
            <a href={href("/events")}>{t("All")}</a>
          </header>
          <ul class="list">
            {latest.map((event) => (
              <li key={event.metadata.uid} class="row">
                <StatusMark status={{ tone: event.type === "Warning" ? "warn" : "ok", word: event.involvedObject?.name ?? "" }} />
                <span class="muted grow ellipsis" title={event.message}>
                  {event.message}
                </span>
                <span class="faint">
                  <Age time={timeOf(event)} />
                </span>
              </li>
            ))}
            {latest.length === 0 && <li class="muted">{t("No events in the last hour.")}</li>}
          </ul>
        </section>
      </div>
    </Page>
  );
}

const RECENT = 6;

/** The newest machines, each one click from its console. */
function RecentMachines({ rows }: { rows: MachineRow[] }) {
  const newest = [...rows].sort((a, b) => ((a.created ?? "") < (b.created ?? "") ? 1 : -1)).slice(0, RECENT);
  return (
    <section class="card">
      <header>
        <h2>{t("Newest machines")}</h2>
        <a href={href("/machines")}>{t("All")}</a>
      </header>
      <ul class="list">
        {newest.map((row) => (
          <li key={row.key} class="row">
            <a class="grow ellipsis" href={href(machinePath(row.namespace, row.name))}>
              {row.name}
            </a>
            <StatusMark status={row.status} />
            <a class="button small" href={href(machinePath(row.namespace, row.name, "console"))} aria-label={t("Console of {name}", { name: row.name })}>
              <Icon name="terminal" />
              {t("Console")}
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Figure({ path, label, value }: { path: string; label: string; value: number }) {
  return (
    <a class="figure" href={href(path)}>
      <b>{value.toLocaleString()}</b>
      <span>{label}</span>
    </a>
  );
}

function FirstSteps() {
  return (
    <section class="card">
      <header>
        <h2>{t("Make your first machine")}</h2>
      </header>
      <div class="body row wraps">
        <a class="button primary" href={href("/machines/new")}>
          <Icon name="plus" />
          {t("Create machine")}
        </a>
        {may("create", "harvesterhci.io", "virtualmachineimages") && (
          <>
            <a class="button" href={href("/images?new=url")}>
              <Icon name="download" />
              {t("Import an image")}
            </a>
            <a class="button" href={href("/images?new=upload")}>
              <Icon name="upload" />
              {t("Upload an image")}
            </a>
          </>
        )}
      </div>
    </section>
  );
}

function CapacityCard({ capacity }: { capacity: Capacity }) {
  const lines: [string, number, number, (value: number) => string, boolean?][] = [
    [t("CPU given to guests"), capacity.cpuUsed, capacity.cpu, (value) => String(Math.round(value * 10) / 10), true],
    [t("Memory given to guests"), capacity.memoryUsed, capacity.memory, formatBytes],
  ];
  return (
    <section class="card">
      <header>
        <h2>{t("Capacity")}</h2>
      </header>
      <div class="body stack">
        {lines.map(([label, used, all, show, plain]) => (
          <div key={label} class="stack tight">
            <div class="row">
              <span class="grow">{label}</span>
              <span class="muted">{t("{used} of {all}", { used: show(used), all: show(all) })}</span>
            </div>
            <Meter value={used} of={all} label={label} plain={plain} />
          </div>
        ))}
        {capacity.fits !== null && <p class="muted">{t("Memory for about {n} more machines with 4 Gi.", { n: capacity.fits })}</p>}
      </div>
    </section>
  );
}
