import { useState } from "preact/hooks";
import { cordon, disableMaintenance } from "../../actions/host.tsx";
import { may } from "../../api/session.ts";
import type { Host } from "../../api/types.ts";
import { Button } from "../../components/Button.tsx";
import { t } from "../../messages.ts";
import { inMaintenance } from "../../model/host.ts";
import { MaintenanceDialog } from "./MaintenanceDialog.tsx";

/** Cordon and maintenance, for those who may change hosts. */
export function HostActions({ host, machines, small = false }: { host: Host; machines: number; small?: boolean }) {
  const [asking, setAsking] = useState(false);
  if (!may("patch", "", "nodes")) return null;
  const maintained = inMaintenance(host);
  return (
    <div class="row">
      {maintained ? (
        <Button small={small} look="primary" icon="wrench" onClick={() => void disableMaintenance(host)}>
          {t("End maintenance")}
        </Button>
      ) : (
        <>
          <Button small={small} onClick={() => void cordon(host, machines)}>
            {host.spec?.unschedulable ? t("Uncordon") : t("Cordon")}
          </Button>
          <Button small={small} icon="wrench" onClick={() => setAsking(true)}>
            {t("Maintenance…")}
          </Button>
        </>
      )}
      {asking && <MaintenanceDialog name={host.metadata.name} onClose={() => setAsking(false)} />}
    </div>
  );
}
