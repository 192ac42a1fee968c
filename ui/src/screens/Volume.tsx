import type { ComponentChildren } from "preact";
import { claimOf, volumeSnapshotMenu, volumeSnapshotStatus } from "../actions/volumeSnapshot.tsx";
import { CLAIM, EVENT, LONGHORN_REPLICA, LONGHORN_VOLUME, VOLUME_SNAPSHOT } from "../api/kinds.ts";
import type { Condition } from "../api/objects.ts";
import { may } from "../api/session.ts";
import type { Claim, KubeEvent, LonghornReplica, LonghornVolume, VolumeSnapshot } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { CopyLine } from "../components/Copy.tsx";
import { Empty, Waiting } from "../components/Empty.tsx";
import { EventList, newestFirst } from "../components/EventList.tsx";
import { Menu } from "../components/Menu.tsx";
import { Note } from "../components/Note.tsx";
import { Page } from "../components/Page.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import { claimsOf, knownMachines } from "../model/machine.ts";
import { formatBytes } from "../model/quantity.ts";
import { claimStatus, replicaStatus } from "../model/volume.ts";
import { hostPath, href, machinePath } from "../router.ts";
import { sizeOf } from "./machine/Disks.tsx";

const STORAGE = "longhorn-system";

export function VolumeDetail({ words }: { words: string[] }) {
  const [, namespace, name] = words;
  const claims = useCollection<Claim>(CLAIM, { namespace, fieldSelector: `metadata.name=${name}` });
  const volumes = useCollection<LonghornVolume>(LONGHORN_VOLUME, { namespace: STORAGE });
  const claim = claims.items.get(`${namespace}/${name}`);
  const crumbs = (
    <nav class="crumbs" aria-label={t("Where")}>
      <a href={href("/volumes")}>{t("Volumes")}</a>
      <span>/</span>
      <span>{namespace}</span>
    </nav>
  );
  if (!claim) {
    const missing = claims.freshness.value === "live";
    return (
      <Page title={name} above={crumbs}>
        {missing ? <Empty icon="disk" title={t("There is no volume {name} in {namespace}", { name, namespace })} /> : <Waiting freshness={claims.freshness.value} error={claims.error.value} />}
      </Page>
    );
  }
  const volume = volumes.items.get(`${STORAGE}/${claim.spec?.volumeName ?? ""}`);
  const problems = ((volume?.status?.conditions ?? []) as Condition[]).filter((one) => one.type === "Scheduled" && one.status === "False" && one.message);
  return (
    <Page title={name} above={crumbs} beside={<StatusMark status={claimStatus(claim, volume)} pill />}>
      {problems.map((one) => (
        <Note key={one.type} tone="warn">
          {one.message}
        </Note>
      ))}
      <div class="cards two">
        <Facts claim={claim} volume={volume} />
        {volume && may("list", LONGHORN_REPLICA.group, LONGHORN_REPLICA.plural) && <Copies volume={volume} />}
        {may("list", VOLUME_SNAPSHOT.group, VOLUME_SNAPSHOT.plural) && <Snapshots claim={claim} />}
        {may("list", "", "events") && <Events claim={claim} />}
      </div>
    </Page>
  );
}

function Card({ title, wide = false, beside, children }: { title: string; wide?: boolean; beside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class={wide ? "card wide" : "card"} aria-label={title}>
      <header>
        <h2>{title}</h2>
        {beside}
      </header>
      {children}
    </section>
  );
}

function Facts({ claim, volume }: { claim: Claim; volume: LonghornVolume | undefined }) {
  const { name, namespace = "", creationTimestamp } = claim.metadata;
  const users = knownMachines().filter((row) => row.namespace === namespace && [...claimsOf(row.machine).values()].includes(name));
  return (
    <Card title={t("Volume")} beside={<a href={href(`/api/core/v1/persistentvolumeclaims/${namespace}/${name}`)}>{t("Show as YAML")}</a>}>
      <div class="body stack">
        <dl class="facts">
          <dt>{t("Size")}</dt>
          <dd>{formatBytes(sizeOf(claim))}</dd>
          <dt>{t("Written")}</dt>
          <dd>{formatBytes(volume?.status?.actualSize)}</dd>
          <dt>{t("Class")}</dt>
          <dd>{claim.spec?.storageClassName ?? "–"}</dd>
          <dt>{t("Encrypted")}</dt>
          <dd>{volume?.spec?.encrypted ? t("yes") : t("no")}</dd>
          <dt>{t("In use on")}</dt>
          <dd>{volume?.status?.currentNodeID || "–"}</dd>
          <dt>{t("Used by")}</dt>
          <dd>
            {users.map((row) => (
              <div key={row.key}>
                <a href={href(machinePath(row.namespace, row.name, "disks"))}>{row.name}</a>
              </div>
            ))}
            {users.length === 0 && t("nobody")}
          </dd>
          <dt>{t("Created")}</dt>
          <dd>
            <Age time={creationTimestamp} />
          </dd>
        </dl>
        <CopyLine text={`sheaf volume status ${name} -n ${namespace}`} />
      </div>
    </Card>
  );
}

/** Where the data is, and which copies hold all of it. */
function Copies({ volume }: { volume: LonghornVolume }) {
  const all = useCollection<LonghornReplica>(LONGHORN_REPLICA, { namespace: STORAGE });
  const own = [...all.items.values()].filter((one) => one.spec?.volumeName === volume.metadata.name);
  return (
    <Card title={t("Copies")} beside={<span class="muted">{t("{n} of {wanted}", { n: own.filter((one) => !one.spec?.failedAt).length, wanted: volume.spec?.numberOfReplicas ?? "?" })}</span>}>
      <ul class="list">
        {own.map((one) => (
          <li key={one.metadata.name} class="row wraps">
            <StatusMark status={replicaStatus(one)} />
            <a href={href(hostPath(one.spec?.nodeID ?? ""))}>{one.spec?.nodeID ?? "–"}</a>
            <span class="muted mono grow wrap">{one.spec?.diskPath}</span>
            <span class="faint">
              <Age time={one.metadata.creationTimestamp} />
            </span>
          </li>
        ))}
        {own.length === 0 && <li class="muted">{t("There is no copy yet.")}</li>}
      </ul>
    </Card>
  );
}

function Snapshots({ claim }: { claim: Claim }) {
  const all = useCollection<VolumeSnapshot>(VOLUME_SNAPSHOT, { namespace: claim.metadata.namespace });
  const own = [...all.items.values()].filter((one) => claimOf(one) === claim.metadata.name);
  return (
    <Card title={t("Snapshots")}>
      <ul class="list">
        {own.map((one) => (
          <li key={one.metadata.name} class="row wraps">
            <b class="grow wrap">{one.metadata.name}</b>
            <StatusMark status={volumeSnapshotStatus(one)} />
            <span class="faint">
              <Age time={one.metadata.creationTimestamp} />
            </span>
            {/* Those of a machine's snapshot come and go with it. */}
            {!one.metadata.ownerReferences?.length && <Menu label={t("Actions of {name}", { name: one.metadata.name })} items={() => volumeSnapshotMenu(one)} />}
          </li>
        ))}
        {own.length === 0 && <li class="muted">{t("None")}</li>}
      </ul>
    </Card>
  );
}

function Events({ claim }: { claim: Claim }) {
  const { name, namespace } = claim.metadata;
  const events = useCollection<KubeEvent>(EVENT, { namespace, fieldSelector: `involvedObject.name=${name}` });
  return (
    <Card title={t("Events")} wide>
      <EventList events={newestFirst(events.items.values())} object={false} />
    </Card>
  );
}
