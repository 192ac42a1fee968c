// The state of an upgrade of the program on all hosts, as the server reports it.
import { condition, type Condition } from "../api/objects.ts";
import type { Host, Upgrade } from "../api/types.ts";
import type { Status } from "./status.ts";

export const INTENT = "sheaf.io/upgrade-intent";
export const ATTEMPT = "sheaf.io/upgrade-attempt";
const FINALIZED = "sheaf.io/upgrade-finalized";
const REPORT = "sheaf.io/program-report";

/** The upgrade that counts: the newest one. */
export function latest(upgrades: Iterable<Upgrade>): Upgrade | undefined {
  const age = (one: Upgrade) => `${one.metadata.creationTimestamp ?? ""}/${one.metadata.name}`;
  return [...upgrades].sort((a, b) => (age(a) < age(b) ? 1 : -1))[0];
}

export interface UpgradeState {
  status: Status;
  message: string;
  /** What can be done to it now. */
  actions: ("pause" | "resume" | "retry" | "abort" | "finalize")[];
}

export function upgradeState(upgrade: Upgrade): UpgradeState {
  const { annotations = {} } = upgrade.metadata;
  const own = condition((upgrade.status?.conditions ?? []) as Condition[], "Completed");
  const message = own?.message ?? "";
  if (own?.status === "True") {
    const final = FINALIZED in annotations;
    if (annotations[INTENT] === "abort" && !final) return { status: { tone: "busy", word: "Going back" }, message, actions: [] };
    return { status: { tone: "ok", word: final ? "Completed, final" : "Completed" }, message, actions: final ? [] : ["abort", "finalize"] };
  }
  if (own?.status === "False") {
    if (own.reason === "Aborted") return { status: { tone: "off", word: "Aborted" }, message, actions: [] };
    return { status: { tone: "bad", word: "Failed", reason: message }, message, actions: ["retry", "abort"] };
  }
  if (annotations[INTENT] === "abort") return { status: { tone: "busy", word: "Going back" }, message, actions: [] };
  if (annotations[INTENT] === "pause") return { status: { tone: "warn", word: "Paused" }, message, actions: ["resume", "abort"] };
  return { status: { tone: "busy", word: "Upgrading" }, message, actions: ["pause", "abort"] };
}

/** The program of a host; nothing until an upgrade has asked for it. */
export function programOf(host: Host): { program: string; version: string } {
  try {
    const report = JSON.parse(host.metadata.annotations?.[REPORT] ?? "{}") as { running?: string; version?: string };
    return { program: report.running?.slice(0, 12) ?? "", version: report.version ?? "" };
  } catch {
    return { program: "", version: "" };
  }
}

/** Tone of a state of a host in an upgrade, as Harvester words it. */
export function hostTone(state: string | undefined): Status["tone"] {
  if (state === "Succeeded") return "ok";
  if (state === "Failed") return "bad";
  return state === "Upgrade-paused" ? "warn" : state ? "busy" : "off";
}

/** The SHA-512 sum of a file, in hexadecimal digits. */
export async function sumOf(file: Blob): Promise<string> {
  const sum = await crypto.subtle.digest("SHA-512", await file.arrayBuffer());
  return [...new Uint8Array(sum)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
