// Actions on receivers of alarms.
import { FIELD_MANAGER, get, mergePatch, post } from "../api/http.ts";
import { pathOf, RECEIVER, SECRET } from "../api/kinds.ts";
import type { AlarmReceiver } from "../api/types.ts";
import { confirm } from "../components/Confirm.tsx";
import type { MenuItem } from "../components/Menu.tsx";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { receiverObject, SECRETS, secretObject, TEST_ANNOTATION, type ReceiverDraft } from "../model/receiver.ts";
import { href } from "../router.ts";
import { deleteObject, notAllowed } from "./remove.ts";

/** The server gives a message up after ten seconds. */
const ANSWERED_WITHIN = 30_000;
const PAUSE = 400;

export async function createReceiver(draft: ReceiverDraft): Promise<void> {
  const query = { fieldManager: FIELD_MANAGER };
  const secret = secretObject(draft);
  // Both are tried first, so that a refused receiver leaves no Secret behind.
  await post(pathOf(RECEIVER), receiverObject(draft), { query: { ...query, dryRun: "All" } });
  if (secret) await post(pathOf(SECRET, SECRETS), secret, { query });
  await post(pathOf(RECEIVER), receiverObject(draft), { query });
}

async function sendTest(name: string): Promise<void> {
  const request = new Date().toISOString();
  const path = pathOf(RECEIVER, "", name);
  await mergePatch(path, { metadata: { annotations: { [TEST_ANNOTATION]: request } } });
  for (const until = Date.now() + ANSWERED_WITHIN; Date.now() < until; ) {
    const { test } = (await get<AlarmReceiver>(path)).status ?? {};
    if (test?.request === request) {
      if (test.error) throw new Error(test.error);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
  throw new Error(t("The server did not send it in time."));
}

export const testReceiver = (name: string) => perform(t("Test message to {name}", { name }), () => sendTest(name), { command: `sheaf alarm receiver test ${name}` }, () => ({ title: t("Test message delivered to {name}", { name }) }));

function pause(name: string, paused: boolean): Promise<boolean> {
  const patch = { spec: { paused } };
  const command = `kubectl patch alarmreceiver ${name} --type merge -p '${JSON.stringify(patch)}'`;
  return perform(`${paused ? t("Pause") : t("Resume")}: ${name}`, () => mergePatch(pathOf(RECEIVER, "", name), patch), { command });
}

async function askDelete(name: string): Promise<void> {
  const body = <p>{t("Alarms are not sent to it any more. A Secret with its address stays.")}</p>;
  if (await confirm({ title: t("Delete the receiver {name}?", { name }), body, action: t("Delete"), danger: true })) await deleteObject(RECEIVER, undefined, name);
}

export function receiverMenu({ metadata: { name }, spec }: AlarmReceiver): MenuItem[] {
  const refusal = notAllowed("patch", RECEIVER);
  return [
    { label: t("Send a test message"), icon: "zap", disabled: refusal, run: () => void testReceiver(name) },
    spec?.paused
      ? { label: t("Resume"), icon: "play", disabled: refusal, run: () => void pause(name, false) }
      : { label: t("Pause"), icon: "pause", disabled: refusal, run: () => void pause(name, true) },
    { label: t("Edit as YAML"), icon: "edit", href: href(`/api/sheaf.io/v1/alarmreceivers/${name}`) },
    { label: t("Delete"), icon: "trash", danger: true, separated: true, disabled: notAllowed("delete", RECEIVER), run: () => void askDelete(name) },
  ];
}
