import { MachineMenu } from "../../components/MachineMenu.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import type { MachineRow } from "../../model/machine.ts";
import { formatBytes } from "../../model/quantity.ts";
import { href, machinePath } from "../../router.ts";

const SHOWN = 50;

/** The machines that run on a host. */
export function HostMachines({ name, rows }: { name: string; rows: MachineRow[] }) {
  const shown = [...rows].sort((a, b) => (a.name < b.name ? -1 : 1)).slice(0, SHOWN);
  return (
    <section class="card wide" aria-label={t("Machines")}>
      <header>
        <h2>{t("Machines")}</h2>
        <a href={href(`/machines?q=node:${name}`)}>{t("All")}</a>
      </header>
      <div class="scroll-x">
        <table class="plain">
          <thead>
            <tr>
              {["Name", "Status", "CPU", "Memory", ""].map((label) => (
                <th key={label}>{label ? t(label) : <span class="sr-only">{t("Actions")}</span>}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={row.key}>
                <td>
                  <a href={href(machinePath(row.namespace, row.name))}>{row.name}</a>
                  <div class="muted">{row.namespace}</div>
                </td>
                <td>
                  <StatusMark status={row.status} />
                </td>
                <td>{row.cpus}</td>
                <td>{formatBytes(row.memory)}</td>
                <td class="right">
                  <MachineMenu row={row} />
                </td>
              </tr>
            ))}
            {rows.length > SHOWN && (
              <tr>
                <td colSpan={5} class="muted">
                  {t("and {n} more", { n: rows.length - SHOWN })}
                </td>
              </tr>
            )}
            {rows.length === 0 && (
              <tr>
                <td colSpan={5} class="muted">
                  {t("No machine runs here.")}
                </td>
              </tr>
            )}
          </tbody>
        </table>
      </div>
    </section>
  );
}
