import { useState } from "preact/hooks";
import { SETTING } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { Setting } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Button } from "../../components/Button.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import { targetOf, targetStatus, targetText } from "../../model/backup.ts";
import { TargetForm } from "./TargetForm.tsx";

/** Where backups go, and whether it can be reached. */
export function TargetCard() {
  const settings = useCollection<Setting>(SETTING);
  const [editing, setEditing] = useState(false);
  const setting = settings.items.get("backup-target");
  if (!setting) return null;
  const target = targetOf(setting.value);
  const status = targetStatus(setting);
  return (
    <section class="card" aria-label={t("Backup target")}>
      <header>
        <h2>{t("Backup target")}</h2>
        <StatusMark status={status} />
        {may("patch", "harvesterhci.io", "settings") && (
          <Button small icon="edit" onClick={() => setEditing(true)}>
            {target.type === "" ? t("Set the target") : t("Change")}
          </Button>
        )}
      </header>
      {target.type !== "" && (
        <div class="body stack tight">
          <span class="mono">{targetText(target)}</span>
          {status.reason && <span class="muted">{status.reason}</span>}
        </div>
      )}
      {editing && <TargetForm setting={setting} onClose={() => setEditing(false)} />}
    </section>
  );
}
