import { useState } from "preact/hooks";
import { get } from "../../api/http.ts";
import { Button } from "../../components/Button.tsx";
import { CopyLine } from "../../components/Copy.tsx";
import { Note } from "../../components/Note.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import { type HostLoss, lossSummary, machineFate, volumeFate } from "../../model/loss.ts";
import type { Status } from "../../model/status.ts";
import { href, machinePath } from "../../router.ts";

/** What the loss of the host would do to machines and volumes. The server answers; nothing changes. */
export function HostLossCard({ name }: { name: string }) {
  const [loss, setLoss] = useState<HostLoss | null>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const ask = async () => {
    setBusy(true);
    setError("");
    try {
      setLoss(await get<HostLoss>(`/sheaf/v1/what-if/nodes/${encodeURIComponent(name)}`));
    } catch (failure) {
      setError(String((failure as Error).message));
    }
    setBusy(false);
  };
  return (
    <section class="card wide" aria-label={t("If this host is lost")}>
      <header>
        <h2>{t("If this host is lost")}</h2>
        <Button small disabled={busy} onClick={() => void ask()}>
          {loss ? t("Check again") : t("Check")}
        </Button>
      </header>
      <div class="body stack">
        {error && <Note tone="bad">{error}</Note>}
        <p class={loss ? "" : "muted"}>{loss ? lossSummary(loss) : t("Shows which machines would start elsewhere and which volumes would be left without a copy. Nothing is changed.")}</p>
        <CopyLine text={`sheaf node what-if ${name}`} />
      </div>
      {loss && (
        <ul class="list">
          {loss.machines.map((machine) => (
            <Row key={`${machine.namespace}/${machine.name}`} status={machineFate(machine)}>
              <a href={href(machinePath(machine.namespace, machine.name))}>
                {machine.namespace}/{machine.name}
              </a>
            </Row>
          ))}
          {loss.volumes.map((volume) => (
            <Row key={volume.name} status={volumeFate(volume)}>
              {volume.claim || volume.name}
            </Row>
          ))}
        </ul>
      )}
    </section>
  );
}

function Row({ status, children }: { status: Status; children: preact.ComponentChildren }) {
  return (
    <li class="row wraps">
      <span class="grow wrap">{children}</span>
      <StatusMark status={status} />
      <span class="muted grow wrap">{status.reason}</span>
    </li>
  );
}
