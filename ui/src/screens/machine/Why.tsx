import { useEffect, useState } from "preact/hooks";
import { get } from "../../api/http.ts";
import { CopyLine } from "../../components/Copy.tsx";
import { Icon } from "../../components/Icon.tsx";
import { t } from "../../messages.ts";
import type { MachineRow } from "../../model/machine.ts";
import type { Tone } from "../../model/status.ts";

interface Finding {
  severity: "error" | "warning" | "info";
  what: string;
  why: string;
  fix: string;
}

interface Diagnosis {
  state: string;
  healthy: boolean;
  findings: Finding[];
}

const TONES: Record<Finding["severity"], Tone> = { error: "bad", warning: "warn", info: "busy" };

/** What is wrong with the machine and what helps, as `sheaf vm why` tells it. */
export function WhyCard({ row }: { row: MachineRow }) {
  const [found, setFound] = useState<Diagnosis | null>(null);
  const revisions = `${row.machine.metadata.resourceVersion}/${row.instance?.metadata.resourceVersion ?? ""}`;
  useEffect(() => {
    const stop = new AbortController();
    const path = `/v1/harvester/kubevirt.io.virtualmachines/${row.namespace}/${row.name}/why`;
    get<Diagnosis>(path, { signal: stop.signal }).then(setFound, () => undefined);
    return () => stop.abort();
  }, [row.key, revisions]);
  if (!found || (found.healthy && found.findings.length === 0)) return null;
  // Its own card tells how far a migration is.
  if (found.findings.length === 0 || found.state === "Migrating") return null;
  return (
    <section class="card wide" aria-label={t("Findings")}>
      <header>
        <h2>{t("What to know")}</h2>
        <code class="muted hide-small">{`sheaf vm why ${row.name} -n ${row.namespace}`}</code>
      </header>
      <ul class="list">
        {found.findings.map((finding) => (
          <li key={finding.what} class="stack tight">
            <span class={`status tone-${TONES[finding.severity]}`}>
              <Icon name={finding.severity === "info" ? "info" : finding.severity === "error" ? "failed" : "warning"} />
              <b>{finding.what}</b>
            </span>
            {finding.why && <span class="muted wrap">{finding.why}</span>}
            {finding.fix && <CopyLine text={finding.fix} />}
          </li>
        ))}
      </ul>
    </section>
  );
}
