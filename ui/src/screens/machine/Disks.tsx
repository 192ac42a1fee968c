import { notAllowed } from "../../actions/remove.ts";
import { useState } from "preact/hooks";
import { mergePatch, put } from "../../api/http.ts";
import { CLAIM, MACHINE, pathOf, subresource } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { Claim } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Button } from "../../components/Button.tsx";
import { confirm } from "../../components/Confirm.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Field } from "../../components/Field.tsx";
import { Menu, type MenuItem } from "../../components/Menu.tsx";
import { ErrorNote } from "../../components/Note.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import { perform } from "../../model/activity.ts";
import { claimsOf, knownMachines, type MachineRow } from "../../model/machine.ts";
import { formatBytes, parseQuantity } from "../../model/quantity.ts";
import { phaseStatus } from "../../model/status.ts";

type Disk = NonNullable<NonNullable<NonNullable<MachineRow["machine"]["spec"]>["template"]["spec"]>["domain"]["devices"]["disks"]>[number];

const deviceOf = (disk: Disk) => (disk.cdrom ? "cdrom" : disk.lun ? "lun" : "disk");
const busOf = (disk: Disk) => (disk.cdrom ?? disk.lun ?? disk.disk)?.bus ?? "–";

const mayChangeDisks = (verb: string) => may("update", "subresources.kubevirt.io", `virtualmachines/${verb}`);

export function MachineDisks({ row }: { row: MachineRow }) {
  const claims = useCollection<Claim>(CLAIM, { namespace: row.namespace });
  const [adding, setAdding] = useState(false);
  const spec = row.machine.spec?.template?.spec;
  const used = claimsOf(row.machine);
  const volumeOf = (name: string) => spec?.volumes?.find((volume) => volume.name === name);
  return (
    <section class="card">
      <header>
        <h2>{t("Disks")}</h2>
        {mayChangeDisks("addvolume") && (
          <Button small icon="plus" onClick={() => setAdding(true)}>
            {t("Attach volume")}
          </Button>
        )}
      </header>
      <div class="scroll-x">
        <table class="plain">
          <thead>
            <tr>
              {["Disk", "Source", "Size", "Status", "Device", "Bus", "Boot order", ""].map((label) => (
                <th key={label}>{label ? t(label) : <span class="sr-only">{t("Actions")}</span>}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {(spec?.domain?.devices?.disks ?? []).map((disk) => {
              const volume = volumeOf(disk.name);
              const claim = claims.items.get(`${row.namespace}/${used.get(disk.name) ?? ""}`);
              return (
                <tr key={disk.name}>
                  <td>
                    <b>{disk.name}</b>
                  </td>
                  <td class="wrap">{used.get(disk.name) ?? sourceOf(volume as Record<string, unknown>)}</td>
                  <td class="nowrap">{claim ? formatBytes(sizeOf(claim)) : "–"}</td>
                  <td>{claim ? <StatusMark status={phaseStatus(claim.status?.phase)} /> : "–"}</td>
                  <td>{deviceOf(disk)}</td>
                  <td>{busOf(disk)}</td>
                  <td>{disk.bootOrder ?? "–"}</td>
                  <td class="right">{claim && <DiskMenu row={row} disk={disk.name} claim={claim} />}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {adding && <AttachVolume row={row} claims={[...claims.items.values()]} onClose={() => setAdding(false)} />}
    </section>
  );
}

export const sizeOf = (claim: Claim): number => {
  const capacity = claim.status?.capacity as Record<string, string> | undefined;
  const requests = claim.spec?.resources?.requests as Record<string, string> | undefined;
  return parseQuantity(capacity?.storage ?? requests?.storage);
};

/** The kind of source of a volume that is not a claim: `cloudInitNoCloud`, `containerDisk`. */
function sourceOf(volume: Record<string, unknown> | undefined): string {
  const kind = Object.keys(volume ?? {}).find((key) => key !== "name") ?? "–";
  const source = volume?.[kind] as { image?: string } | undefined;
  return source?.image ? `${kind}: ${source.image}` : kind;
}

function DiskMenu({ row, disk, claim }: { row: MachineRow; disk: string; claim: Claim }) {
  const [growing, setGrowing] = useState(false);
  const detach = async () => {
    const answer = await confirm({
      title: t("Detach {disk} from {name}?", { disk, name: row.name }),
      body: <p>{t("The volume {claim} and its data stay.", { claim: claim.metadata.name })}</p>,
      action: t("Detach"),
    });
    if (answer) await perform(`${t("Detach")}: ${disk}`, () => put(subresource(MACHINE, row.namespace, row.name, "removevolume"), { name: disk }), { command: `virtctl removevolume ${row.name} --volume-name ${disk} -n ${row.namespace}` });
  };
  const items: MenuItem[] = [
    { label: t("Grow…"), icon: "up", disabled: notAllowed("patch", CLAIM), run: () => setGrowing(true) },
    { label: t("Detach"), icon: "close", danger: true, disabled: mayChangeDisks("removevolume") ? undefined : t("Not allowed: {verb} {resource}", { verb: "update", resource: "virtualmachines/removevolume" }), run: () => void detach() },
  ];
  return (
    <>
      <Menu label={t("Actions of {name}", { name: disk })} items={items} />
      {growing && <GrowVolume claim={claim} onClose={() => setGrowing(false)} />}
    </>
  );
}

/** A larger size for a volume; the guest sees it at once. */
export function GrowVolume({ claim, onClose }: { claim: Claim; onClose: () => void }) {
  const now = sizeOf(claim);
  const [size, setSize] = useState(String(Math.ceil(now / 2 ** 30) + 1));
  const [error, setError] = useState<unknown>(null);
  const submit = async () => {
    try {
      await mergePatch(pathOf(CLAIM, claim.metadata.namespace, claim.metadata.name), { spec: { resources: { requests: { storage: `${size}Gi` } } } });
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  const small = Number(size) * 2 ** 30 <= now;
  return (
    <Dialog
      title={t("Grow {name}", { name: claim.metadata.name })}
      onClose={onClose}
      onSubmit={() => !small && void submit()}
      footer={
        <>
          <Button onClick={onClose}>{t("Cancel")}</Button>
          <Button submit look="primary" disabled={small ? t("Choose more than {size}", { size: formatBytes(now) }) : false}>
            {t("Grow")}
          </Button>
        </>
      }
    >
      <div class="stack">
        <ErrorNote error={error} />
        <Field label={t("New size in Gi")} hint={t("Now {size}. A volume cannot shrink.", { size: formatBytes(now) })}>
          <input class="input" type="number" min={Math.ceil(now / 2 ** 30)} value={size} onInput={(event) => setSize(event.currentTarget.value)} />
        </Field>
      </div>
    </Dialog>
  );
}

function AttachVolume({ row, claims, onClose }: { row: MachineRow; claims: Claim[]; onClose: () => void }) {
  const taken = new Set(knownMachines().filter((one) => one.namespace === row.namespace).flatMap((one) => [...claimsOf(one.machine).values()]));
  const free = claims.filter((claim) => !taken.has(claim.metadata.name) && claim.status?.phase === "Bound");
  const [chosen, setChosen] = useState(free[0]?.metadata.name ?? "");
  const [error, setError] = useState<unknown>(null);
  const submit = async () => {
    const body = {
      name: chosen,
      disk: { disk: { bus: "scsi" }, name: chosen },
      volumeSource: { persistentVolumeClaim: { claimName: chosen, hotpluggable: true } },
    };
    try {
      await put(subresource(MACHINE, row.namespace, row.name, "addvolume"), body);
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <Dialog
      title={t("Attach a volume to {name}", { name: row.name })}
      onClose={onClose}
      onSubmit={() => chosen && void submit()}
      footer={
        <>
          <Button onClick={onClose}>{t("Cancel")}</Button>
          <Button submit look="primary" disabled={chosen ? false : t("No volume is free")}>
            {t("Attach")}
          </Button>
        </>
      }
    >
      <div class="stack">
        <ErrorNote error={error} />
        <Field label={t("Volume")} hint={free.length === 0 ? t("Every volume of the project is used by a machine. Create one under Volumes.") : t("Volumes of the project that no machine uses.")}>
          <select class="input" value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>
            {free.map((claim) => (
              <option key={claim.metadata.name} value={claim.metadata.name}>
                {`${claim.metadata.name} (${formatBytes(sizeOf(claim))})`}
              </option>
            ))}
          </select>
        </Field>
      </div>
    </Dialog>
  );
}
