import type { ComponentType } from "preact";
import { MACHINE_ACTIONS, refusalOf, runAction } from "../actions/machine.tsx";
import { INSTANCE, MACHINE } from "../api/kinds.ts";
import type { Instance, Machine } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Button } from "../components/Button.tsx";
import { CopyButton } from "../components/Copy.tsx";
import { Empty, Waiting } from "../components/Empty.tsx";
import { Lazy } from "../components/Lazy.tsx";
import { MachineMenu } from "../components/MachineMenu.tsx";
import { Page } from "../components/Page.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import { machineRow, type MachineRow } from "../model/machine.ts";
import { href, machinePath } from "../router.ts";
import { MachineSummary } from "./machine/Summary.tsx";

type Tab = ComponentType<{ row: MachineRow }>;

const TABS: { id: string; label: string; full?: boolean; load: () => Promise<Tab> }[] = [
  { id: "", label: "Summary", load: async () => MachineSummary },
  { id: "console", label: "Console", full: true, load: async () => (await import("./machine/Console.tsx")).MachineConsole },
  { id: "metrics", label: "Usage", load: async () => (await import("./machine/Metrics.tsx")).MachineMetrics },
  { id: "disks", label: "Disks", load: async () => (await import("./machine/Disks.tsx")).MachineDisks },
  { id: "networks", label: "Networks", load: async () => (await import("./machine/Networks.tsx")).MachineNetworks },
  { id: "snapshots", label: "Snapshots", load: async () => (await import("./machine/Snapshots.tsx")).MachineSnapshots },
  { id: "backups", label: "Backups", load: async () => (await import("./machine/Backups.tsx")).MachineBackups },
  { id: "events", label: "Events", load: async () => (await import("./machine/Events.tsx")).MachineEvents },
  { id: "history", label: "History", load: async () => (await import("./machine/History.tsx")).MachineHistory },
  { id: "yaml", label: "YAML", full: true, load: async () => (await import("./machine/Yaml.tsx")).MachineYaml },
];

export function MachineDetail({ words }: { words: string[] }) {
  const [, namespace, name, tab = ""] = words;
  const of = { namespace, fieldSelector: `metadata.name=${name}` };
  const machines = useCollection<Machine>(MACHINE, of);
  const instances = useCollection<Instance>(INSTANCE, of);
  const machine = machines.items.get(`${namespace}/${name}`);
  const crumbs = (
    <nav class="crumbs" aria-label={t("Where")}>
      <a href={href("/machines")}>{t("Machines")}</a>
      <span>/</span>
      <span>{namespace}</span>
    </nav>
  );
  if (!machine) {
    const missing = machines.freshness.value === "live";
    return (
      <Page title={name} above={crumbs}>
        {missing ? (
          <Empty icon="monitor" title={t("There is no machine {name} in {namespace}", { name, namespace })} action={<a class="button" href={href("/machines")}>{t("All machines")}</a>}>
            {t("It may have been deleted while you looked at it.")}
          </Empty>
        ) : (
          <Waiting freshness={machines.freshness.value} error={machines.error.value} />
        )}
      </Page>
    );
  }
  const row = machineRow(machine, instances.items.get(`${namespace}/${name}`));
  const chosen = TABS.find((one) => one.id === tab) ?? TABS[0];
  return (
    <Page
      title={name}
      above={crumbs}
      full={chosen.full}
      beside={
        <>
          <StatusMark status={row.status} pill />
          {row.addresses[0] && (
            <span class="row hide-small mono">
              {row.addresses[0]}
              <CopyButton text={row.addresses[0]} label={t("Copy address")} />
            </span>
          )}
        </>
      }
      actions={<HeadActions row={row} />}
    >
      <nav class="tabs" aria-label={t("Parts of the machine")}>
        {TABS.map((one) => (
          <a key={one.id} href={href(machinePath(namespace, name, one.id))} aria-current={one === chosen ? "page" : undefined}>
            {t(one.label)}
          </a>
        ))}
      </nav>
      <Lazy key={chosen.id} load={chosen.load} row={row} />
    </Page>
  );
}

/** The one action that is likely next, and all others in the menu. */
function HeadActions({ row }: { row: MachineRow }) {
  const likely = ["start", "stop", "restart", "unpause"].map((id) => MACHINE_ACTIONS.find((one) => one.id === id));
  return (
    <div class="row">
      {likely.map(
        (action) =>
          action &&
          refusalOf(action, row) === undefined && (
            <Button key={action.id} icon={action.icon} look={action.id === "start" || action.id === "unpause" ? "primary" : "plain"} onClick={() => void runAction(action, [row])}>
              {t(action.label)}
            </Button>
          ),
      )}
      <MachineMenu row={row} open={false} />
    </div>
  );
}
