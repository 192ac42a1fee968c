import { Empty } from "../../components/Empty.tsx";
import { UsageCharts } from "../../components/UsageCharts.tsx";
import { t } from "../../messages.ts";
import type { MachineRow } from "../../model/machine.ts";
import { machineSeries } from "../../model/series.ts";

/** What a machine used lately. Its host keeps the figures while it runs. */
export function MachineMetrics({ row }: { row: MachineRow }) {
  if (!row.node) {
    return (
      <Empty icon="gauge" title={t("The machine does not run")}>
        {t("Figures are kept by the host that runs it.")}
      </Empty>
    );
  }
  return <UsageCharts load={machineSeries(row.namespace, row.name)} of={`${row.key} ${row.node}`} cores={row.cpus} memory={row.memory} />;
}
