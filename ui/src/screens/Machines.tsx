import { useMemo, useState } from "preact/hooks";
import { MACHINE_ACTIONS, refusalOf, runAction } from "../actions/machine.tsx";
import { INSTANCE, MACHINE } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import type { Instance, Machine } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { Empty, Waiting } from "../components/Empty.tsx";
import { FilterBox } from "../components/FilterBox.tsx";
import { Grid, type Column } from "../components/Grid.tsx";
import { Icon } from "../components/Icon.tsx";
import { MachineMenu } from "../components/MachineMenu.tsx";
import { Page } from "../components/Page.tsx";
import { StatusMark } from "../components/StatusMark.tsx";
import { t } from "../messages.ts";
import { compileFilter } from "../model/filter.ts";
import { machineRows, type MachineRow } from "../model/machine.ts";
import { formatBytes } from "../model/quantity.ts";
import { here, href, machinePath, navigate, setQuery } from "../router.ts";

const keyOf = (row: MachineRow) => row.key;
const menuOf = (row: MachineRow) => <MachineMenu row={row} />;
const pathOf = (row: MachineRow) => machinePath(row.namespace, row.name);

const COLUMNS: Column<MachineRow>[] = [
  {
    id: "name", label: t("Name"), width: "minmax(130px, 1.4fr)", sort: (row) => row.name, phone: "first",
    cell: (row) => (
      <a class="name" href={href(pathOf(row))} tabIndex={-1}>
        {row.name}
      </a>
    ),
  },
  {
    id: "status", label: t("Status"), width: "minmax(130px, 1.3fr)", sort: (row) => row.status.word, phone: "second",
    cell: (row) => <StatusMark status={row.status} reason />,
  },
  { id: "project", label: t("Project"), width: "minmax(80px, 0.8fr)", sort: (row) => row.namespace, cell: (row) => <span class="muted">{row.namespace}</span> },
  {
    id: "address", label: t("Address"), width: "minmax(110px, 1fr)", sort: (row) => row.addresses[0] ?? "", phone: "second",
    cell: (row) => <span class="mono">{row.addresses.join(", ") || "–"}</span>,
  },
  { id: "node", label: t("Host"), width: "minmax(70px, 0.7fr)", sort: (row) => row.node, cell: (row) => row.node || "–" },
  { id: "cpu", label: t("CPU"), width: "52px", right: true, sort: (row) => row.cpus, cell: (row) => row.cpus },
  { id: "memory", label: t("Memory"), width: "80px", right: true, sort: (row) => row.memory || 0, cell: (row) => formatBytes(row.memory) },
  { id: "age", label: t("Age"), width: "52px", right: true, sort: (row) => -Date.parse(row.created ?? ""), cell: (row) => <Age time={row.created} /> },
];

const BULK = ["start", "stop", "restart", "migrate", "snapshot", "delete"];

/** Actions for several machines at once. */
function BulkBar({ rows, clear }: { rows: MachineRow[]; clear: () => void }) {
  return (
    <div class="row wraps" role="group" aria-label={t("Actions for the selected machines")}>
      <b>{t("{n} selected", { n: rows.length })}</b>
      {MACHINE_ACTIONS.filter((action) => BULK.includes(action.id)).map((action) => (
        <Button
          key={action.id}
          small
          icon={action.icon}
          look={action.danger ? "danger" : "plain"}
          disabled={rows.every((row) => refusalOf(action, row) !== undefined) ? t("It applies to none of them now") : false}
          // A selection that outlives its action hits the wrong machines the next time.
          onClick={() => void runAction(action, rows, clear)}
        >
          {t(action.label)}
        </Button>
      ))}
      <Button small look="quiet" onClick={clear}>
        {t("Clear")}
      </Button>
    </div>
  );
}

const STATES: [label: string, query: string][] = [
  ["Running", "status:running"],
  ["Stopped", "status:stopped"],
  ["Needs attention", "-status:running|stopped|starting|stopping"],
];

export function Machines() {
  const machines = useCollection<Machine>(MACHINE);
  const instances = useCollection<Instance>(INSTANCE);
  const [selected, setSelected] = useState(new Set<string>());
  const text = here.value.query.get("q") ?? "";
  const changes = `${machines.version.value} ${instances.version.value}`;
  const all = useMemo(() => machineRows(machines, instances), [changes]);
  const rows = useMemo(() => all.filter(compileFilter(text)), [changes, text]);
  const chosen = rows.filter((row) => selected.has(row.key));
  const onKey = (event: KeyboardEvent, row: MachineRow) => {
    const action = MACHINE_ACTIONS.find((one) => one.key === event.key);
    if (action) void runAction(action, [row]);
    else if (event.key === "v") navigate(machinePath(row.namespace, row.name, "console"));
  };
  const create = may("create", "kubevirt.io", "virtualmachines") && (
    <a class={machines.items.size === 0 ? "button primary" : "button primary only-small"} href={href("/machines/new")}>
      <Icon name="plus" />
      {t("Create machine")}
    </a>
  );
  const empty =
    machines.freshness.value === "loading" || machines.freshness.value === "failed" ? (
      <Waiting freshness={machines.freshness.value} error={machines.error.value} />
    ) : all.length === 0 ? (
      <Empty icon="monitor" title={t("No machines yet")} action={create} command="sheaf vm create web --image FILE|URL">
        {t("A machine is a guest with its disks and networks. Make one from an image, or from a container disk of a registry.")}
      </Empty>
    ) : (
      <Empty icon="search" title={t("No machine matches")} action={<Button onClick={() => setQuery({ q: null })}>{t("Clear the filter")}</Button>} />
    );
  return (
    <Page title={t("Machines")} full actions={all.length > 0 && create}>
      <div class="toolbar">
        <FilterBox placeholder={t("Filter: web, status:running, node:n1, cpu>2, age<1d")} shown={rows.length} all={all.length} />
        {chosen.length > 0 ? (
          <BulkBar rows={chosen} clear={() => setSelected(new Set())} />
        ) : (
          <div class="row hide-small">
            {STATES.map(([label, query]) => (
              <Button key={label} small look="quiet" pressed={text === query} onClick={() => setQuery({ q: text === query ? null : query })}>
                {t(label)}
              </Button>
            ))}
          </div>
        )}
      </div>
      <Grid
        label={t("Machines")}
        columns={COLUMNS}
        rows={rows}
        keyOf={keyOf}
        path={pathOf}
        selected={selected}
        onSelect={setSelected}
        onKey={onKey}
        menu={menuOf}
        empty={rows.length === 0 ? empty : undefined}
      />
    </Page>
  );
}
