import { deleteObject, notAllowed } from "../actions/remove.ts";
import { useState } from "preact/hooks";
import { FIELD_MANAGER, post } from "../api/http.ts";
import { CLAIM, LONGHORN_REPLICA, LONGHORN_VOLUME, pathOf, STORAGE_CLASS, VOLUME_SNAPSHOT } from "../api/kinds.ts";
import { firstProject, may } from "../api/session.ts";
import type { Claim, LonghornReplica, LonghornVolume, StorageClass } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { stamp } from "../actions/machine.tsx";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { confirm } from "../components/Confirm.tsx";
import { Empty } from "../components/Empty.tsx";
import { Field } from "../components/Field.tsx";
import { FormDialog } from "../components/FormDialog.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu, type MenuItem } from "../components/Menu.tsx";
import { NamespaceSelect } from "../components/NamespaceSelect.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import type { Filterable } from "../model/filter.ts";
import { claimsOf, knownMachines } from "../model/machine.ts";
import { formatBytes, parseQuantity } from "../model/quantity.ts";
import type { Status } from "../model/status.ts";
import { claimStatus } from "../model/volume.ts";
import { href, machinePath, volumePath } from "../router.ts";
import { GrowVolume, sizeOf } from "./machine/Disks.tsx";

interface VolumeRow extends Filterable {
  claim: Claim;
  status: Status;
  size: number;
  used: number;
  copies: string;
  usedBy: string[];
}

/** How many copies each volume has that hold its data. */
function goodCopies(replicas: Iterable<LonghornReplica>): Map<string, number> {
  const found = new Map<string, number>();
  for (const replica of replicas) {
    const volume = replica.spec?.volumeName ?? "";
    if (!replica.spec?.failedAt) found.set(volume, (found.get(volume) ?? 0) + 1);
  }
  return found;
}

function rowsOf(claims: Iterable<Claim>, volumes: Map<string, LonghornVolume>, copies: Map<string, number>): VolumeRow[] {
  const users = new Map<string, string[]>();
  for (const machine of knownMachines()) {
    for (const claim of claimsOf(machine.machine).values()) {
      const key = `${machine.namespace}/${claim}`;
      users.set(key, [...(users.get(key) ?? []), machine.name]);
    }
  }
  return [...claims].map((claim) => {
    const volume = volumes.get(`longhorn-system/${claim.spec?.volumeName ?? ""}`);
    const { name, namespace = "" } = claim.metadata;
    const status = claimStatus(claim, volume);
    const usedBy = users.get(`${namespace}/${name}`) ?? [];
    const size = sizeOf(claim);
    return {
      claim, status, size, usedBy,
      used: parseQuantity(volume?.status?.actualSize as string | undefined),
      copies: volume ? t("{n} of {wanted}", { n: copies.get(volume.metadata.name) ?? 0, wanted: volume.spec?.numberOfReplicas ?? "?" }) : "–",
      text: `${name} ${namespace} ${usedBy.join(" ")} ${claim.spec?.storageClassName ?? ""}`.toLowerCase(),
      fields: { status: status.word, project: namespace, class: claim.spec?.storageClassName, machine: usedBy.join(" "), used: usedBy.length > 0 ? "yes" : "no" },
      numbers: { size },
    };
  });
}

const pathTo = (row: VolumeRow) => volumePath(row.claim.metadata.namespace ?? "", row.claim.metadata.name);

const COLUMNS: Column<VolumeRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(150px, 1.5fr)", sort: (row) => row.claim.metadata.name, cell: (row) => <a class="name" tabIndex={-1} href={href(pathTo(row))}>{row.claim.metadata.name}</a>, phone: "first" },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.7fr)", sort: (row) => row.claim.metadata.namespace ?? "", cell: (row) => <span class="muted">{row.claim.metadata.namespace}</span> },
  { id: "status", label: t("Status"), width: "minmax(110px, 1fr)", sort: (row) => row.status.word, cell: (row) => <StatusMark status={row.status} />, phone: "second" },
  { id: "size", label: t("Size"), width: "80px", right: true, sort: (row) => row.size, cell: (row) => formatBytes(row.size), phone: "second" },
  { id: "used", label: t("Written"), width: "80px", right: true, sort: (row) => row.used || 0, cell: (row) => formatBytes(row.used) },
  { id: "copies", label: t("Copies"), width: "60px", right: true, sort: (row) => row.copies, cell: (row) => row.copies },
  {
    id: "machine", label: t("Used by"), width: "minmax(100px, 1fr)", sort: (row) => row.usedBy.join(),
    cell: (row) => row.usedBy.length === 0 ? <span class="faint">{t("nobody")}</span> : row.usedBy.map((name) => (
      <a key={name} href={href(machinePath(row.claim.metadata.namespace ?? "", name))} tabIndex={-1}>{name} </a>
    )),
  },
  { id: "class", label: t("Class"), width: "minmax(90px, 0.9fr)", sort: (row) => row.claim.spec?.storageClassName ?? "", cell: (row) => row.claim.spec?.storageClassName ?? "–" },
  { id: "age", label: t("Age"), width: "52px", right: true, sort: (row) => -Date.parse(row.claim.metadata.creationTimestamp ?? ""), cell: (row) => <Age time={row.claim.metadata.creationTimestamp} /> },
];

function takeSnapshot(claim: Claim): Promise<unknown> {
  const { name, namespace } = claim.metadata;
  const body = {
    apiVersion: "snapshot.storage.k8s.io/v1", kind: "VolumeSnapshot",
    metadata: { name: `${name}-${stamp()}`, namespace },
    spec: { volumeSnapshotClassName: "longhorn-snapshot", source: { persistentVolumeClaimName: name } },
  };
  return post(pathOf(VOLUME_SNAPSHOT, namespace), body, { query: { fieldManager: FIELD_MANAGER } });
}

async function askDelete(row: VolumeRow): Promise<void> {
  const { name, namespace } = row.claim.metadata;
  const answer = await confirm({
    title: t("Delete the volume {name}?", { name }),
    body: <p>{t("Its data is lost.")}</p>,
    action: t("Delete"), danger: true, type: name,
  });
  if (answer) await deleteObject(CLAIM, namespace, name);
}

export function Volumes() {
  const claims = useCollection<Claim>(CLAIM);
  const volumes = useCollection<LonghornVolume>(LONGHORN_VOLUME, { namespace: "longhorn-system" });
  const replicas = useCollection<LonghornReplica>(LONGHORN_REPLICA, { namespace: "longhorn-system" });
  const [creating, setCreating] = useState(false);
  const [growing, setGrowing] = useState<Claim | null>(null);
  const menu = (row: VolumeRow) => {
    const items: MenuItem[] = [
      { label: t("Grow…"), icon: "up", disabled: notAllowed("patch", CLAIM), run: () => setGrowing(row.claim) },
      { label: t("Take snapshot"), icon: "camera", disabled: notAllowed("create", VOLUME_SNAPSHOT), run: () => void perform(`${t("Take snapshot")}: ${row.claim.metadata.name}`, () => takeSnapshot(row.claim)) },
      { label: t("Edit as YAML"), icon: "edit", href: href(`/api/core/v1/persistentvolumeclaims/${row.claim.metadata.namespace}/${row.claim.metadata.name}`) },
      {
        label: t("Delete"), icon: "trash", danger: true, separated: true,
        disabled: row.usedBy.length > 0 ? t("{name} uses it", { name: row.usedBy.join(", ") }) : notAllowed("delete", CLAIM),
        run: () => void askDelete(row),
      },
    ];
    return <Menu label={t("Actions of {name}", { name: row.claim.metadata.name })} items={items} />;
  };
  const create = may("create", "", "persistentvolumeclaims") && (
    <Button icon="plus" onClick={() => setCreating(true)}>
      {t("Create volume")}
    </Button>
  );
  return (
    <ListPage
      title={t("Volumes")}
      source={claims}
      rows={rowsOf(claims.items.values(), volumes.items, goodCopies(replicas.items.values()))}
      columns={COLUMNS}
      keyOf={(row) => `${row.claim.metadata.namespace}/${row.claim.metadata.name}`}
      path={pathTo}
      menu={menu}
      actions={create}
      hint={t("Filter: name, status:degraded, used:no, size>10Gi")}
      empty={
        <Empty icon="disk" title={t("No volumes yet")} command="kubectl get pvc -A">
          {t("Volumes appear with machines; make an empty one to attach it to a machine.")}
        </Empty>
      }
    >
      {creating && <CreateVolume onClose={() => setCreating(false)} />}
      {growing && <GrowVolume claim={growing} onClose={() => setGrowing(null)} />}
    </ListPage>
  );
}

const DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class";

function CreateVolume({ onClose }: { onClose: () => void }) {
  const classes = useCollection<StorageClass>(STORAGE_CLASS);
  const names = [...classes.items.values()].filter((one) => !one.metadata.name.startsWith("lh-"));
  const usual = names.find((one) => one.metadata.annotations?.[DEFAULT_CLASS] === "true")?.metadata.name ?? names[0]?.metadata.name ?? "";
  const [name, setName] = useState("");
  const [namespace, setNamespace] = useState(firstProject);
  const [size, setSize] = useState("10");
  const [chosen, setChosen] = useState("");
  const submit = () =>
    post(
      pathOf(CLAIM, namespace),
      {
        apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name, namespace },
        spec: { accessModes: ["ReadWriteOnce"], volumeMode: "Block", storageClassName: chosen || usual, resources: { requests: { storage: `${size}Gi` } } },
      },
      { query: { fieldManager: FIELD_MANAGER, fieldValidation: "Strict" } },
    );
  return (
    <FormDialog title={t("Create an empty volume")} action={t("Create")} missing={name ? undefined : t("A name is missing")} submit={submit} onClose={onClose}>
      <div class="fields">
        <Field label={t("Name")}>
          <input class="input" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field label={t("Project")}>
          <NamespaceSelect value={namespace} onChange={setNamespace} />
        </Field>
        <Field label={t("Size in Gi")}>
          <input class="input" type="number" min="1" value={size} onInput={(event) => setSize(event.currentTarget.value)} />
        </Field>
        <Field label={t("Class")}>
          <select class="input" value={chosen || usual} onChange={(event) => setChosen(event.currentTarget.value)}>
            {names.map((one) => (
              <option key={one.metadata.name}>{one.metadata.name}</option>
            ))}
          </select>
        </Field>
      </div>
    </FormDialog>
  );
}
