import { abortMigration } from "../../actions/migration.tsx";
import { MIGRATION } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { Migration } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { Meter } from "../../components/Meter.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import type { MachineRow } from "../../model/machine.ts";
import { isOver, migrationProgress, migrationStatus, newestMigration, targetOf } from "../../model/migration.ts";

/** The last migration of a machine: how far it is, or how it ended. */
export function MigrationCard({ row }: { row: MachineRow }) {
  const all = useCollection<Migration>(MIGRATION, { namespace: row.namespace });
  const migration = newestMigration(all.items.values(), row.name);
  if (!migration) return null;
  const over = isOver(migration);
  const target = targetOf(migration, row.instance);
  return (
    <section class="card" aria-label={t("Migration")}>
      <header>
        <h2>{t("Migration")}</h2>
        {!over && may("delete", "kubevirt.io", "virtualmachineinstancemigrations") && (
          <Button small icon="close" onClick={() => void abortMigration(migration)}>
            {t("Abort migration")}
          </Button>
        )}
      </header>
      <div class="body stack tight">
        <div class="row wraps">
          <StatusMark status={migrationStatus(migration)} />
          <span class="muted grow">{target && t("to {node}", { node: target })}</span>
          <span class="faint">
            <Age time={migration.metadata.creationTimestamp} />
          </span>
        </div>
        {!over && <Meter value={migrationProgress(migration)} of={1} label={t("Progress of the migration")} plain />}
        {migrationStatus(migration).reason && <p class="tone-bad text wrap">{migrationStatus(migration).reason}</p>}
      </div>
    </section>
  );
}
