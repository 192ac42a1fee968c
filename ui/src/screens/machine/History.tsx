import { useState } from "preact/hooks";
import { MACHINE, REVISION } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { ControllerRevision } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Diff } from "../../components/Diff.tsx";
import { Empty, Waiting } from "../../components/Empty.tsx";
import { t } from "../../messages.ts";
import { changesBetween, changeText, HISTORY_LABEL, versionsOf, type Version } from "../../model/history.ts";
import type { MachineRow } from "../../model/machine.ts";
import { toYaml } from "../../model/yaml.ts";
import { href, machinePath } from "../../router.ts";

/** The versions of a machine that the server has kept. */
export function useVersions(row: MachineRow) {
  const source = useCollection<ControllerRevision>(REVISION, { namespace: row.namespace, labelSelector: `${HISTORY_LABEL}=${row.machine.metadata.uid}` });
  return { source, versions: versionsOf(source.items.values()) };
}

/** The versions of a machine: their authors, times and differences, and restoring one. */
export function MachineHistory({ row }: { row: MachineRow }) {
  const { source, versions } = useVersions(row);
  const [shown, setShown] = useState<number | null>(null);
  const freshness = source.freshness.value;
  if (versions.length === 0) {
    if (freshness === "loading" || freshness === "failed") return <Waiting freshness={freshness} error={source.error.value} />;
    return (
      <Empty icon="history" title={t("No versions yet")} command={`kubectl get controllerrevisions -n ${row.namespace} -l ${HISTORY_LABEL}=${row.machine.metadata.uid}`}>
        {t("Each change of the machine's specification is kept as a version.")}
      </Empty>
    );
  }
  const chosen = versions.find((one) => one.number === shown);
  return (
    <>
      <section class="card scroll-x" aria-label={t("Versions")}>
        <table class="plain">
          <thead>
            <tr>
              {["Version", "Changed by", "Age", "Changes", ""].map((label) => (
                <th key={label}>{label ? t(label) : <span class="sr-only">{t("Actions")}</span>}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {versions.map((one, index) => (
              <VersionRow key={one.number} row={row} version={one} current={index === 0} shown={one === chosen} onShow={() => setShown(one === chosen ? null : one.number)} />
            ))}
          </tbody>
        </table>
      </section>
      {chosen && <Comparison version={chosen} versions={versions} />}
    </>
  );
}

const SUMMED_UP = 3;

function VersionRow({ row, version, current, shown, onShow }: { row: MachineRow; version: Version; current: boolean; shown: boolean; onShow: () => void }) {
  const changes = version.before ? changesBetween(version.before.spec, version.spec).map(changeText) : [];
  const more = changes.length - SUMMED_UP;
  const summary = version.before ? changes.slice(0, SUMMED_UP).join(", ") + (more > 0 ? `, +${more}` : "") : t("the oldest that is kept");
  const mayRestore = !current && may("update", MACHINE.group, MACHINE.plural);
  return (
    <tr>
      <td>
        <b>{version.number}</b> {current && <span class="tag">{t("now")}</span>}
      </td>
      <td class="muted">{version.by || "–"}</td>
      <td>
        <Age time={version.at} />
      </td>
      <td class="wrap">{summary}</td>
      <td class="right nowrap">
        <button type="button" class="button small" aria-pressed={shown} aria-label={t("Compare version {n}", { n: version.number })} onClick={onShow}>
          {t("Compare")}
        </button>
        {mayRestore && (
          <a class="button small" href={href(`${machinePath(row.namespace, row.name, "yaml")}?version=${version.number}`)} aria-label={t("Restore version {n}", { n: version.number })}>
            {t("Restore…")}
          </a>
        )}
      </td>
    </tr>
  );
}

function Comparison({ version, versions }: { version: Version; versions: Version[] }) {
  const [other, setOther] = useState<number | null>(null);
  const with_ = versions.find((one) => one.number === other) ?? version.before ?? versions[0];
  const [before, after] = with_.number < version.number ? [with_, version] : [version, with_];
  return (
    <section class="card" aria-label={t("Comparison")}>
      <header>
        <h2>{t("From version {a} to {b}", { a: before.number, b: after.number })}</h2>
        <label class="row">
          <span class="muted">{t("Compare with")}</span>
          <select class="input" value={with_.number} onChange={(event) => setOther(Number(event.currentTarget.value))}>
            {versions.map((one) => (
              <option key={one.number} value={one.number}>
                {one.number}
              </option>
            ))}
          </select>
        </label>
      </header>
      <div class="body">
        <Diff before={toYaml(before.spec)} after={toYaml(after.spec)} />
      </div>
    </section>
  );
}
