import { useEffect, useState } from "preact/hooks";
import { enableMaintenance, previewMaintenance, type MaintenancePreview, type PreviewedMachine } from "../../actions/host.tsx";
import { CopyLine } from "../../components/Copy.tsx";
import { FormDialog } from "../../components/FormDialog.tsx";
import { Icon } from "../../components/Icon.tsx";
import { ErrorNote, Note } from "../../components/Note.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { plural, t } from "../../messages.ts";
import { begin, update } from "../../model/activity.ts";
import type { Status } from "../../model/status.ts";
import { href, machinePath } from "../../router.ts";

/** Why a machine cannot be migrated, and what helps. */
const REASONS: Record<string, string> = {
  Label: "Its label asks for a shutdown.",
  LastHealthyReplica: "The only up-to-date copy of one of its volumes is on this host. Add a copy elsewhere and wait until it is complete.",
  NodeSchedulingRequirementsNotMet: "No other host has the labels that it asks for, or room.",
  DisksNotLiveMigratable: "One of its disks exists on this host only.",
  InterfaceNotLiveMigratable: "One of its interfaces does not migrate.",
  HostDeviceNotLiveMigratable: "It uses a device of this host.",
};

const FATES: Record<PreviewedMachine["action"], Status> = {
  Migrate: { tone: "ok", word: "Migrates" },
  ShutDown: { tone: "warn", word: "Is shut down" },
  Blocked: { tone: "bad", word: "Cannot leave" },
};

function summary(preview: MaintenancePreview, force: boolean): string {
  const fates = preview.machines.map((one) => (force ? one.forced : one.action));
  const count = (fate: PreviewedMachine["action"]) => fates.filter((one) => one === fate).length;
  return t("{moves} migrate, {down} are shut down, {blocked} cannot leave.", { moves: count("Migrate"), down: count("ShutDown"), blocked: count("Blocked") });
}

/** Asks the server what maintenance would do, shows it, and requests it. */
export function MaintenanceDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const [preview, setPreview] = useState<MaintenancePreview | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [force, setForce] = useState(false);
  useEffect(() => {
    let wanted = true;
    previewMaintenance(name).then((found) => wanted && setPreview(found), (failure: unknown) => wanted && setError(failure));
    return () => {
      wanted = false;
    };
  }, [name]);
  const blocked = preview?.machines.some((one) => one.action === "Blocked") ?? false;
  const missing = !preview
    ? t("The server has not answered yet")
    : preview.refusal
      ? t("The host cannot be put into maintenance")
      : blocked && !force
        ? t("Some machines cannot leave")
        : undefined;
  const command = `sheaf node maintenance ${name}${force ? " --force" : ""}`;
  const submit = async () => {
    await enableMaintenance(name, force);
    update(begin(t("Maintenance requested: {name}", { name }), { command }), { state: "done" });
  };
  return (
    <FormDialog title={t("Put {name} into maintenance?", { name })} action={t("Begin maintenance")} missing={missing} wide submit={submit} onClose={onClose}>
      <p>{t("It takes no new machines, and those on it leave. Copies of volumes stay; volumes go on with their other copies.")}</p>
      <ErrorNote error={error} />
      {!preview && !error && (
        <p role="status" class="row muted">
          <Icon name="spinner" spin />
          {t("Asking what would happen…")}
        </p>
      )}
      {preview?.refusal && <Note tone="bad">{preview.refusal}</Note>}
      {preview && preview.machines.length === 0 && <Note tone="ok">{t("No machine runs on it or needs it.")}</Note>}
      {preview && preview.machines.length > 0 && (
        <>
          <b>{`${plural(preview.machines.length, "machine")}: ${summary(preview, force)}`}</b>
          <div class="scroll-x">
            <table class="plain">
              <thead>
                <tr>
                  <th>{t("Machine")}</th>
                  <th>{t("What happens")}</th>
                  <th>{t("Why")}</th>
                </tr>
              </thead>
              <tbody>
                {preview.machines.map((one) => (
                  <tr key={`${one.namespace}/${one.name}`}>
                    <td>
                      <a href={href(machinePath(one.namespace, one.name))}>{one.name}</a>
                      <div class="muted">{one.namespace}</div>
                    </td>
                    <td>
                      <StatusMark status={FATES[force ? one.forced : one.action]} />
                    </td>
                    <td class="muted wrap">{one.reason ? (REASONS[one.reason] ? t(REASONS[one.reason]) : one.reason) : ""}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
      {blocked && !preview?.refusal && (
        <label class="check">
          <input type="checkbox" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} />
          {t("Shut down the machines that cannot leave; they stay down until somebody starts them")}
        </label>
      )}
      <CopyLine text={command} />
    </FormDialog>
  );
}
