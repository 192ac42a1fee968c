// Receivers of alarms: their form, and what the list shows of them. Pure.
import { condition, type Condition } from "../api/objects.ts";
import type { AlarmReceiver } from "../api/types.ts";
import { invalidName } from "./name.ts";
import type { Status } from "./status.ts";

/** Every new value of this annotation sends a test message. */
export const TEST_ANNOTATION = "sheaf.io/alarm-test";
/** Secrets with addresses are here. */
export const SECRETS = "kube-system";

export const FORMATS = ["alertmanager", "slack", "ntfy"] as const;

export interface ReceiverDraft {
  name: string;
  /** Whether the address is kept in a Secret. */
  hidden: boolean;
  url: string;
  secret: string;
  key: string;
  format: (typeof FORMATS)[number];
  criticalOnly: boolean;
  sendResolved: boolean;
}

export const EMPTY_RECEIVER: ReceiverDraft = { name: "", hidden: false, url: "", secret: "", key: "url", format: "alertmanager", criticalOnly: false, sendResolved: true };

export function receiverObject(draft: ReceiverDraft) {
  const { name, hidden, url, secret, key, format, criticalOnly, sendResolved } = draft;
  const address = hidden ? { urlSecret: { name: secret, key } } : { url };
  const spec = { ...address, format, minimumSeverity: criticalOnly ? "critical" : "warning", sendResolved };
  return { apiVersion: "sheaf.io/v1", kind: "AlarmReceiver", metadata: { name }, spec };
}

/** The Secret that is created with the receiver; nothing if it exists already. */
export function secretObject({ hidden, secret, key, url }: ReceiverDraft) {
  if (!hidden || url === "") return undefined;
  return { apiVersion: "v1", kind: "Secret", metadata: { name: secret, namespace: SECRETS }, type: "Opaque", stringData: { [key]: url } };
}

export function receiverMissing({ name, hidden, url, secret, key }: ReceiverDraft): string | undefined {
  if (name === "") return "A name is missing";
  const wrong = invalidName(name);
  if (wrong) return wrong;
  if (hidden && (secret === "" || key === "")) return "The Secret and its key are missing";
  if (url === "") return hidden ? undefined : "An address is missing";
  return /^https?:\/\/[^\s]+$/.test(url) ? undefined : "The address begins with http:// or https://";
}

/** The same on a command line. The address of a Secret is not part of it. */
export function receiverCommand({ name, hidden, url, secret, format, criticalOnly, sendResolved }: ReceiverDraft): string {
  const address = hidden ? `--url-secret ${secret || "SECRET"}` : `--url ${url || "URL"}`;
  return ["sheaf alarm receiver add", name || "NAME", address, format === "alertmanager" ? "" : `--format ${format}`, criticalOnly ? "--critical-only" : "", sendResolved ? "" : "--no-resolved"]
    .filter((part) => part !== "")
    .join(" ");
}

/** The host or the Secret of the address. Paths may have tokens, and are left out. */
export function addressText({ spec }: AlarmReceiver): string {
  if (spec?.urlSecret) return `Secret ${spec.urlSecret.name}/${spec.urlSecret.key ?? "url"}`;
  return /^https?:\/\/(?:[^/@\s]*@)?([^/?#\s]+)/.exec(spec?.url ?? "")?.[1] ?? "–";
}

export function sendsText({ spec }: AlarmReceiver): string {
  if (spec?.paused) return "nothing";
  return spec?.minimumSeverity === "critical" ? "critical" : "all";
}

export function receiverStatus({ spec, status }: AlarmReceiver): Status {
  const delivered = condition(status?.conditions as Condition[] | undefined, "Delivered");
  if (delivered?.status === "False") return { tone: spec?.paused ? "off" : "bad", word: "Not delivered", reason: delivered.message };
  if (spec?.paused) return { tone: "off", word: "Paused" };
  return delivered ? { tone: "ok", word: "Delivered" } : { tone: "off", word: "Nothing sent yet" };
}
