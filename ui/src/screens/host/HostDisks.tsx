import { Meter } from "../../components/Meter.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import { diskRows, type StorageNode } from "../../model/host.ts";
import { formatBytes } from "../../model/quantity.ts";

/** The disks that hold copies of volumes: how full they are, and whether they take more. */
export function HostDisks({ node }: { node: StorageNode | undefined }) {
  const rows = diskRows(node);
  return (
    <section class="card wide" aria-label={t("Disks")}>
      <header>
        <h2>{t("Disks for volumes")}</h2>
      </header>
      <div class="scroll-x">
        <table class="plain">
          <thead>
            <tr>
              {["Disk", "Status", "Used", "Promised to volumes", "Copies"].map((label) => (
                <th key={label}>{t(label)}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.name}>
                <td>
                  <b>{row.name}</b>
                  <div class="muted mono wrap">{row.path}</div>
                  {row.tags.map((tag) => (
                    <span key={tag} class="tag">
                      {tag}
                    </span>
                  ))}
                </td>
                <td>
                  <StatusMark status={row.status} reason />
                </td>
                <td>
                  <span class="muted">{t("{used} of {all}", { used: formatBytes(row.used), all: formatBytes(row.size) })}</span>
                  <Meter value={row.used} of={row.size} label={t("Used space of {name}", { name: row.name })} />
                </td>
                <td>{formatBytes(row.scheduled)}</td>
                <td>{row.replicas}</td>
              </tr>
            ))}
            {rows.length === 0 && (
              <tr>
                <td colSpan={5} class="muted">
                  {t("This host has no disk for volumes.")}
                </td>
              </tr>
            )}
          </tbody>
        </table>
      </div>
    </section>
  );
}
