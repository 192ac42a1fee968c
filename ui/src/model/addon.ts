// States of add-ons. Pure.
import type { Addon } from "../api/types.ts";
import type { Status } from "./status.ts";

const conditionOf = (addon: Addon, type: string) => addon.status?.conditions?.find((one) => one.type === type);

export function addonStatus(addon: Addon): Status {
  const failed = conditionOf(addon, "OperationFailed");
  if (addon.spec?.enabled && failed?.status === "True") return { tone: "bad", word: "Not available", reason: failed.message };
  if (addon.status?.status === "AddonDeploySuccessful") return { tone: "ok", word: "Enabled" };
  if (addon.spec?.enabled) return { tone: "busy", word: "Enabling" };
  return { tone: "off", word: "Disabled" };
}

/** What the server says of the add-on: what it is here, or why it is not available. */
export function addonNote(addon: Addon): string {
  return conditionOf(addon, "OperationFailed")?.message || conditionOf(addon, "Completed")?.message || "";
}
