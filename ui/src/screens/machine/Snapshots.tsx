import { useState } from "preact/hooks";
import { snapshotMenu, snapshotStatus } from "../../actions/snapshot.tsx";
import { stamp, takeSnapshot } from "../../actions/machine.tsx";
import { RESTORE, SNAPSHOT } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { MachineRestore, MachineSnapshot } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Empty } from "../../components/Empty.tsx";
import { Field } from "../../components/Field.tsx";
import { Menu } from "../../components/Menu.tsx";
import { ErrorNote } from "../../components/Note.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import type { MachineRow } from "../../model/machine.ts";
import { snapshotTree } from "../../model/snapshotTree.ts";

/** Deeper branches are indented like this one: a phone has no more room. */
const MOST_INDENTED = 4;

export function MachineSnapshots({ row }: { row: MachineRow }) {
  const all = useCollection<MachineSnapshot>(SNAPSHOT, { namespace: row.namespace });
  const [taking, setTaking] = useState(false);
  const restores = useCollection<MachineRestore>(RESTORE, { namespace: row.namespace });
  const own = snapshotTree(all.items.values(), restores.items.values(), row.name);
  const take = may("create", "snapshot.kubevirt.io", "virtualmachinesnapshots") && (
    <Button small icon="camera" look="primary" onClick={() => setTaking(true)}>
      {t("Take snapshot")}
    </Button>
  );
  return (
    <section class="card">
      <header>
        <h2>{t("Snapshots")}</h2>
        {take}
      </header>
      {own.length === 0 ? (
        <Empty icon="camera" title={t("No snapshots yet")}>
          {t("Take one before you change something: disks and configuration can go back to it.")}
        </Empty>
      ) : (
        <div class="scroll-x">
          <table class="plain">
            <thead>
              <tr>
                {["Name", "Status", "Guest", "Age", ""].map((label) => (
                  <th key={label}>{label ? t(label) : <span class="sr-only">{t("Actions")}</span>}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {own.map(({ snapshot: one, depth, isCurrent }) => (
                <tr key={one.metadata.name}>
                  <td class={`branch depth-${Math.min(depth, MOST_INDENTED)}`}>
                    <b>{one.metadata.name}</b> {isCurrent && <span class="tag">{t("the machine continues from here")}</span>}
                  </td>
                  <td>
                    <StatusMark status={snapshotStatus(one)} reason />
                  </td>
                  <td class="muted">{(one.status?.indications ?? []).join(", ") || "–"}</td>
                  <td>
                    <Age time={one.metadata.creationTimestamp} />
                  </td>
                  <td class="right">
                    <Menu label={t("Actions of {name}", { name: one.metadata.name })} items={() => snapshotMenu(one)} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {taking && <TakeSnapshot row={row} onClose={() => setTaking(false)} />}
    </section>
  );
}

function TakeSnapshot({ row, onClose }: { row: MachineRow; onClose: () => void }) {
  const [name, setName] = useState(`${row.name}-${stamp()}`);
  const [memory, setMemory] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const running = row.instance?.status?.phase === "Running";
  const submit = async () => {
    try {
      await takeSnapshot(row, name, memory);
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <Dialog
      title={t("Take a snapshot of {name}", { name: row.name })}
      onClose={onClose}
      onSubmit={() => void submit()}
      footer={
        <>
          <Button onClick={onClose}>{t("Cancel")}</Button>
          <Button submit look="primary">
            {t("Take snapshot")}
          </Button>
        </>
      }
    >
      <div class="stack">
        <ErrorNote error={error} />
        <Field label={t("Name")} hint={t("All disks at one moment, and the configuration of the machine.")}>
          <input class="input mono" value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        {running && (
          <label class="check">
            <input type="checkbox" checked={memory} onChange={(event) => setMemory(event.currentTarget.checked)} />
            {t("With the memory of the guest: a restored machine goes on where it was")}
          </label>
        )}
      </div>
    </Dialog>
  );
}
