import { EVENT } from "../../api/kinds.ts";
import type { KubeEvent } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { EventList, newestFirst } from "../../components/EventList.tsx";
import { claimsOf, type MachineRow } from "../../model/machine.ts";

/** Events about the machine, its instance, its launcher and its disks. */
export function MachineEvents({ row }: { row: MachineRow }) {
  const events = useCollection<KubeEvent>(EVENT, { namespace: row.namespace });
  const names = new Set([row.name, ...claimsOf(row.machine).values()]);
  const launcher = `virt-launcher-${row.name}-`;
  const own = [...events.items.values()].filter((event) => {
    const name = event.involvedObject?.name ?? "";
    return names.has(name) || name.startsWith(launcher);
  });
  return (
    <section class="card">
      <EventList events={newestFirst(own)} />
    </section>
  );
}
